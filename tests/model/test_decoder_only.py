"""Decoder-only translation: one causal stack whose prefix is the source."""

from __future__ import annotations

import pytest
import torch
from choices import SOCKETS, members
from pydantic import ValidationError
from torch.nn import functional

from deepwire.errors import UsageError
from deepwire.model.config import ModelConfig
from deepwire.testing import (
    SIZE,
    TOLERANCE,
    batch,
    check_gradients,
    check_model,
    check_recomputation,
    small_model,
)

ALONE = {"architecture": "decoder_only"}


@pytest.mark.parametrize("socket", SOCKETS)
def test_every_member_works_alone_unless_it_reads_an_encoder(socket: str) -> None:
    """How positions see each other is all that is another matter than in a decoder with an encoder."""
    refused, reasons = [], []
    for name in members(socket):
        settings = {**ALONE, "decoder": {socket: {"type": name}}}
        try:
            check_model(settings) if socket == "mixer" else check_gradients(small_model(settings))
        except UsageError as error:
            refused.append(name)
            reasons.append(error.message)
    expected = {
        "mixer": ["luna", "merged_attention", "mixed_attention"],
        "connection": ["rnmt", "collaboration"],
        "aggregation": [],
        "fusion": ["blocks", "transparent"],
    }
    assert refused == expected[socket]
    assert all("reads an encoder" in each or "does not work in the decoder" in each for each in reasons)


@pytest.mark.parametrize(
    "changes",
    [
        {"embeddings": {"tie": "none"}},
        {"embeddings": {"tie": "output", "norm": True}},
        {"embeddings": {"side": True, "start": "eos"}},
        {"positions": "none"},
        {"decoder": {"mixer": {"type": "self_attention", "relative": 2, "relative_values": True}}},
        {"inner_norm": True},
    ],
)
def test_settings_of_the_model_work_alone(changes: dict[str, object]) -> None:
    check_model({**ALONE, **changes})
    check_recomputation(small_model({**ALONE, **changes}))


def test_source_and_target_are_one_sequence() -> None:
    """What is predicted behind a source is what is predicted behind the same tokens in a target."""
    model = small_model({**ALONE, "embeddings": {"tie": "all"}})
    source, target_input, _ = batch()
    joined = torch.cat((source[:1], target_input[:1]), 1)
    nothing = source[:1, :0]
    found = model.log_probs(source[:1], target_input[:1])
    expected = model.log_probs(nothing, joined)[:, source.size(1) :]
    assert torch.allclose(found, expected, atol=TOLERANCE)


def test_a_long_target_after_sources_of_different_lengths() -> None:
    """Slots of the cache are dropped and added on the way."""
    model = small_model({**ALONE, "decoder": {"mixer": {"type": "self_attention", "relative": 3}}})
    source = torch.tensor([[4, 9, 5, 17, 6, 8, 2], [8, 2, 0, 0, 0, 0, 0]])
    tokens = torch.randint(4, SIZE, (2, 40), generator=torch.Generator().manual_seed(1))
    whole = model.log_probs(source, tokens)
    state = model.start(source).expand(3)
    for position in range(40):
        log_probs, state = model.step(tokens[:, position].repeat_interleave(3), state)
        assert torch.allclose(log_probs[::3], whole[:, position], atol=TOLERANCE)
        state = state.reorder(torch.tensor([0, 0, 1, 3, 3, 3]))


def test_loss_of_the_source_counts_each_of_its_words_but_the_first() -> None:
    plain, both = (small_model({**ALONE, "source_loss": wanted}) for wanted in (False, True))
    source, target_input, target_output = batch()
    log_probs = both.log_probs(source[:, :0], source)
    of_source = functional.nll_loss(
        log_probs[:, :-1].flatten(0, 1), source[:, 1:].flatten(), ignore_index=0, reduction="sum"
    )
    expected = plain.loss(source, target_input, target_output)
    assert torch.equal(both.loss(source, target_input, target_output).nll, expected.nll)  # not in training
    found = both.train().loss(source, target_input, target_output)
    assert torch.equal(found.nll, expected.nll)
    assert int(found.tokens) == int(expected.tokens)
    assert torch.allclose(found.smoothed, expected.smoothed + of_source, atol=1e-4)
    twice = both.loss(source, target_input, target_output, r_drop=1.0)
    assert torch.allclose(twice.smoothed, found.smoothed, atol=1e-3)  # no dropout: no divergence


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"decoder": {"mixer": "luna"}}, "decoder.mixer: luna reads an encoder"),
        ({"decoder": {"inner_feed_forward": True}}, "needs a cross-attention after it"),
        ({"share_layers": True}, "share_layers: true needs an encoder"),
        ({"languages": {"transform": "identity"}}, "languages.transform: identity needs an encoder"),
    ],
)
def test_what_needs_an_encoder_is_refused(wanted: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        ModelConfig.model_validate({**ALONE, **wanted})
