"""The orders of residual connection and layer norm, and which of them are the same model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import small_model

V1: dict[str, object] = {"type": "pre_norm", "residual": "normalised"}
SOURCE = torch.tensor([[4, 9, 5, 17, 2], [8, 6, 2, 0, 0]])
TARGET = torch.tensor([[1, 5, 9, 12], [1, 6, 6, 0]])


def model_of(connection: object, **stack: object) -> TranslationModel:
    return small_model({side: {"connection": connection, **stack} for side in ("encoder", "decoder")})


def copy_by_place(pre: TranslationModel, post: TranslationModel, *, embedding_norm: bool) -> None:
    """Give the post-norm model the parameters of the v1 model: each norm closes what it began there."""
    values = dict(pre.named_parameters(remove_duplicate=False))
    for side, calls in (("encoder", 6), ("decoder", 9)):
        norms = {f"{side}.connection.norms.{call - 1}": call for call in range(1, calls)}
        if embedding_norm:
            norms[f"{side}.connection.embedding_norm"] = 0
        for leaf in ("weight", "bias"):
            for ours, call in norms.items():
                theirs = values.pop(f"{side}.connection.norms.{call}.{leaf}", None)
                if theirs is not None:
                    values[f"moved/{ours}.{leaf}"] = theirs
            last = values.pop(f"{side}.connection.final_norm.{leaf}")
            values[f"moved/{side}.connection.norms.{calls - 1}.{leaf}"] = last
    post.load_state_dict({name.removeprefix("moved/"): value for name, value in values.items()})


@pytest.mark.parametrize("mixer_norm", [True, False])
def test_residual_from_the_normalised_input_is_post_norm(mixer_norm: bool) -> None:
    """Neutron's default order, with one norm (on the embedding) more than post-norm; without the norms in
    front of the mixers, that one is left out too."""
    pre = model_of({**V1, "mixer_norm": mixer_norm})
    post = model_of({"type": "post_norm", "mixer_norm": mixer_norm, "embedding_norm": mixer_norm})
    copy_by_place(pre, post, embedding_norm=mixer_norm)
    with torch.no_grad():
        found, expected = (model.log_probs(SOURCE, TARGET) for model in (pre, post))
    assert torch.allclose(found, expected, atol=1e-5)


def test_residual_from_the_input_is_another_model() -> None:
    """The same parameters give other outputs."""
    normalised, plain = model_of(V1), model_of("pre_norm")
    plain.load_state_dict(normalised.state_dict())
    with torch.no_grad():
        found, other = (model.log_probs(SOURCE, TARGET) for model in (normalised, plain))
    assert not torch.allclose(found, other, atol=1e-3)


@pytest.mark.parametrize("residual", ["input", "normalised"])
def test_a_mixer_without_norm_reads_and_keeps_the_raw_stream(residual: str) -> None:
    """x + F(x), whatever the order of the other sub-layers."""
    config = ModelConfig.model_validate(
        {
            "d_model": 16,
            "heads": 4,
            "dropout": 0.0,
            "decoder": {
                "layers": 1,
                "connection": {"type": "pre_norm", "residual": residual, "mixer_norm": False},
            },
        }
    )
    connection = config.decoder.connection.build(
        replace(config.specs()["decoder"], sublayers=("mixer", "cross"))
    )
    x, output = torch.randn(2, 3, 16) * 5 + 1, torch.randn(2, 3, 16)
    state = connection.start(x, Context())
    read = connection.read(state, 0, Context())
    assert torch.equal(read, x)
    state = connection.write(state, 0, read, output, Context())
    assert torch.equal(state[0], x + output)
    assert (
        connection.read(state, 1, Context()).mean(-1).abs().max() < 1e-5
    )  # the norm in front of the others stays
