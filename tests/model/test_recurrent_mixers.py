"""LN-LSTM, ATR and GRU: in models, their equations, their options and their state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.recurrent import (
    ATRConfig,
    Cell,
    GRUConfig,
    LNLSTMConfig,
    RecurrentMixer,
    RecurrentSection,
)
from deepwire.testing import small_model

LSTM, ATR, GRU = {"type": "ln_lstm"}, {"type": "atr"}, {"type": "gru"}
EPS = 1e-6


@pytest.mark.parametrize("name", ["ln_lstm", "atr", "gru"])
def test_an_encoder_reads_each_sentence_from_both_ends(name: str) -> None:
    """Word by word and sentence by sentence: one cell from the first word on, another from the last."""
    model = small_model({"encoder": {"mixer": name}})
    mixer: Any = model.encoder.mixers[1]
    assert mixer.ahead.cell.dim == mixer.back.cell.dim == 8
    x, lengths = torch.randn(3, 6, 16), [6, 1, 4]
    padding = torch.zeros(3, 1, 1, 6)
    for row, length in enumerate(lengths):
        padding[row, ..., length:] = float("-inf")
    with torch.no_grad():
        found = mixer(x, Context(padding=padding))
        unpadded = mixer(x[:1], Context())
        torch.testing.assert_close(unpadded, found[:1])
        for row, length in enumerate(lengths):
            for part, half, words in (
                (mixer.ahead, slice(0, 8), range(length)),
                (mixer.back, slice(8, 16), reversed(range(length))),
            ):
                state = tuple(leaf.unsqueeze(0) for leaf in part.initial)
                for word in words:
                    state = advance(part.cell, x[row, word : word + 1], state)
                    torch.testing.assert_close(found[row, word, half], state[0][0], atol=2e-5, rtol=1e-5)


def advance(cell: Cell, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One step without dropout."""
    read, recurrent = cell.linear_maps()
    return cell(read.apply(x), state, recurrent, None, Context())


def cell_of(config: RecurrentSection, width: int, dim: int) -> Any:
    """A cell that reads vectors of one width and gives those of another, without dropout."""
    spec = ModelConfig.model_validate({"dropout": 0.0}).specs()["decoder"]
    return config.cell(replace(spec, mixer_width=width, dim=dim, norm_eps=EPS))


def disturbed(cell: Cell) -> Cell:
    """The same cell with parameters away from ones and zeros."""
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return cell


def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Layer norm over the last axis, written out."""
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + EPS).sqrt() * weight + bias


@pytest.mark.parametrize("carried", ["state", "product"])
@pytest.mark.parametrize("bias", [False, True])
def test_atr_in_both_published_forms(carried: Literal["state", "product"], bias: bool) -> None:
    """h' = i p + f h in the paper, i p + f q in Neutron."""
    cell = disturbed(cell_of(ATRConfig(carried=carried, bias=bias), 5, 6))
    x, output = torch.randn(3, 5), torch.randn(3, 6)
    p = x @ cell.input.weight.t() + (cell.input.bias if bias else 0)
    q = output @ cell.recurrent.weight.t() + (cell.recurrent.bias if bias else 0)
    past = output if carried == "state" else q
    expected = (p + q).sigmoid() * p + (p - q).sigmoid() * past
    torch.testing.assert_close(advance(cell, x, (output,))[0], expected)


CELLS: dict[str, RecurrentSection] = {
    "ln_lstm": LNLSTMConfig(),
    "joint": LNLSTMConfig(gate_norm="joint", bias=True),
    "atr": ATRConfig(),
    "atr_product": ATRConfig(carried="product"),
    "gru": GRUConfig(bias=True),
}


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(CELLS)),
    width=st.integers(1, 9),
    dim=st.integers(2, 9),
    length=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)
def test_a_sequence_is_its_steps(name: str, width: int, dim: int, length: int, seed: int) -> None:
    """At every length, and for every width of input and output."""
    torch.manual_seed(seed)
    mixer = RecurrentMixer(disturbed(cell_of(CELLS[name], width, dim)))
    x = torch.randn(2, length, width)
    with torch.no_grad():
        mixer.initial.normal_()
        whole = mixer(x, Context())
        assert whole.shape == (2, length, dim)
        state = mixer.init_state(2, x)
        for position in range(length):
            found, state = mixer.step(
                x[:, position : position + 1], state, Context(index=CacheIndex(len(x), position=position))
            )
            torch.testing.assert_close(found[:, 0], whole[:, position], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(CELLS))
def test_the_initial_state_is_learned_and_begins_at_zero(name: str) -> None:
    """One for all rows; the first output depends on all of it."""
    mixer = RecurrentMixer(cell_of(CELLS[name], 4, 4))
    assert not mixer.initial.any()
    x = torch.randn(1, 3, 4).expand(5, 3, 4)
    y = mixer(x, Context())
    torch.testing.assert_close(y, y[:1].expand_as(y))
    y.square().sum().backward()
    assert mixer.initial.grad is not None
    assert mixer.initial.grad.abs().sum(1).gt(0).all()


@pytest.mark.parametrize(("mixer", "expected"), [("ln_lstm", "68.69"), ("atr", "59.23")])
def test_size_in_the_decoder_of_transformer_base(mixer: str, expected: str) -> None:
    """Six layers of each in place of self-attention and its norm, 35,627 subwords, in millions."""
    plain = {"type": "pre_norm", "residual": "normalised"}
    config = ModelConfig.model_validate(
        {
            "encoder": {"connection": plain},
            "decoder": {"mixer": mixer, "connection": {**plain, "mixer_norm": False}},
        }
    )
    with torch.device("meta"):
        model = build_model(config, 35_627, 35_627)
    assert f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f}" == expected
