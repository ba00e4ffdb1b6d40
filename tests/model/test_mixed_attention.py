"""Mixed attention and layers that encoder and decoder share: in models, written out, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.mixers.mixed_attention import MixedAttention, MixedAttentionConfig
from deepwire.testing import SMALL, check_model, small_model

MIXED = {"type": "mixed_attention"}
BLOCKS = {"fusion": "blocks"}
COORDINATED = {
    "share_layers": True,
    "embeddings": {"side": True},
    "encoder": {"connection": "post_norm", **BLOCKS},
    "decoder": {"connection": "post_norm", "mixer": MIXED},
}


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder": BLOCKS, "decoder": {"mixer": MIXED, "connection": "post_norm"}},
        {
            "decoder": {
                "mixer": MIXED,
                "connection": {"type": "runge_kutta", "order": 2},
                "aggregation": "dlcl",
            }
        },
        {**COORDINATED, "inner_norm": True, "bias": {"attention": True}},
        {**COORDINATED, "encoder": BLOCKS, "decoder": {"mixer": MIXED}, "languages": {"norm": True}},
        {
            **COORDINATED,
            "encoder": {"connection": "rezero", "fusion": "transparent"},
            "decoder": {"connection": "rezero", "mixer": MIXED, "aggregation": "dlcl"},
        },
    ],
)
def test_models(settings: Mapping[str, object]) -> None:
    """Gradients, padding, causality, steps and beams; alone and with shared layers."""
    check_model(settings)


def padding_bias() -> Tensor:
    """Hides the last of three positions of the second of two sentences."""
    bias = torch.zeros(2, 1, 1, 3, dtype=torch.float64)
    bias[1, ..., 2] = float("-inf")
    return bias


def mixer_of(changes: Mapping[str, object] | None = None) -> MixedAttention:
    """One mixer of a small model, in double precision."""
    torch.manual_seed(0)
    model = ModelConfig.model_validate({**SMALL, **(changes or {})})
    mixer = MixedAttentionConfig().build(model.specs()["decoder"])
    assert isinstance(mixer, MixedAttention)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter)
    return mixer.double()


def test_one_softmax_over_the_source_and_the_past() -> None:
    """Head by head and word by word, with the same projections for both sides."""
    mixer = mixer_of().eval()
    x, encoded, bias = torch.randn(2, 5, 16).double(), torch.randn(2, 3, 16).double(), padding_bias()
    found = mixer(x, Context(memory=(mixer.project(encoded, Context(padding=bias)),)))
    weight = mixer.query_key_value.weight
    for row in range(2):
        source = encoded[row, : 3 - row]
        for t in range(5):
            seen = torch.cat((source, x[row, : t + 1]))
            heads = []
            for head in range(4):
                query, key, value = (weight[16 * part + 4 * head :][:4] for part in range(3))
                scores = (seen @ key.t()) @ (query @ x[row, t]) / 4**0.5
                heads.append(scores.softmax(0) @ (seen @ value.t()))
            torch.testing.assert_close(found[row, t], mixer.output.weight @ torch.cat(heads))


def test_layers_are_one_and_train_as_one() -> None:
    """Mixer, network and norms of layer i; the gradient is the sum of what both stacks would get."""
    shared, apart = small_model(COORDINATED), small_model({**COORDINATED, "share_layers": False})
    own = dict(shared.named_parameters())
    assert not any(name.startswith("decoder.") for name in own)
    count = sum(parameter.numel() for parameter in shared.stack("encoder").parameters())
    assert sum(parameter.numel() for parameter in shared.decoder.parameters()) == count
    apart.load_state_dict(shared.state_dict())
    tokens = torch.tensor([[4, 9, 5, 2]]), torch.tensor([[1, 5, 9]]), torch.tensor([[5, 9, 2]])
    losses = [model.loss(*tokens).smoothed for model in (shared, apart)]
    torch.testing.assert_close(losses[0], losses[1])
    for loss in losses:
        loss.backward()
    other = dict(apart.named_parameters())
    for name, parameter in own.items():
        expected = other[name].grad
        if name.startswith("encoder."):
            expected = expected + other[name.replace("encoder", "decoder", 1)].grad
        torch.testing.assert_close(parameter.grad, expected)


def test_a_side_has_a_vector_of_its_own() -> None:
    """The same word at the same place differs by the difference of the two vectors, also step by step."""
    model = small_model({**COORDINATED, "positions": "none"})
    source, target = model.source_embedding, model.target_embedding
    assert source.table is target.table
    word = torch.tensor([[7]])
    difference = (target(word) - source(word))[0]
    torch.testing.assert_close(difference, target.side.table - source.side.table)
    assert difference.abs().max() > 0.01
