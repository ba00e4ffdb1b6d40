"""Weights over depth that depend on the text: what is followed is what sub-layers read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import ModelMaker, Store
from torch import Tensor

from deepwire.lab.signals import Signal, signal_values
from deepwire.lab.weights import MEAN, analyse_weights, text_weights
from deepwire.model.introspection import DepthWeights
from deepwire.model.translation_model import TranslationModel
from deepwire.training.device import DeviceBatch

CONNECTIONS: list[object] = [
    {"type": "hyper", "lanes": 3},
    {"type": "hyper", "lanes": 2, "dynamic": False},
    "mhc_lite",
    {"type": "mhc", "lanes": 3, "end": "head"},
    {"type": "attn_res", "block": "full"},
    {"type": "attn_res", "block": 2},
    {"type": "attn_res", "block": 3, "bias": 1.0},
    {"type": "attn_res", "block": 2, "sources": "streams"},
]


def drawn(model: TranslationModel) -> TranslationModel:
    """Far from where it begins, so that every weight counts."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def one_word(source: int = 5) -> DeviceBatch:
    """A sentence and a translation of one word: its weights are their own mean."""
    return DeviceBatch(torch.tensor([[source]]), torch.tensor([[1]]), torch.tensor([[2]]))


def values(model: TranslationModel, batch: DeviceBatch) -> dict[Signal, Tensor]:
    """What sub-layers read and give."""
    return signal_values(model, batch)


def of_encoder(model: TranslationModel, *batches: DeviceBatch) -> dict[str, DepthWeights]:
    return {weights.key: weights for side, weights in text_weights(model, batches) if side == "encoder"}


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_weights_say_what_each_sublayer_reads(connection: object, make_model: ModelMaker) -> None:
    """The outputs below, each times its weight, make what the norm of the sub-layer is given."""
    model = drawn(make_model({"connection": connection}))
    seen = values(model, one_word())
    outputs = [seen[Signal("encoder", "embedding")]]
    outputs += [seen[Signal("encoder", "gives", number)] for number in range(6)]
    table = of_encoder(model, one_word())["mixing"].values.float()
    norms = model.stack("encoder").get_submodule("connection.norms")
    for number in range(6):
        mixed = sum(table[number, below] * outputs[below] for below in range(number + 1))
        read = seen[Signal("encoder", "reads", number)]
        torch.testing.assert_close(norms[number](mixed), read, atol=1e-4, rtol=1e-4)
        assert table[number, number + 1 :].isnan().all()
    assert table[6].isfinite().all()


@pytest.mark.parametrize("ways", [1, 4])
def test_sums_of_mudd(ways: int, make_model: ModelMaker) -> None:
    """The sum behind a layer, as the next one finds it in its stream, or in its queries."""
    model = drawn(make_model({"aggregation": {"type": "mudd", "ways": ways}}))
    seen = values(model, one_word())
    outputs = [seen[Signal("encoder", "embedding")]]
    outputs += [seen[Signal("encoder", "output", layer)] for layer in range(3)]
    found = of_encoder(model, one_word())
    assert len(found) == ways
    table = found["sums-stream" if ways == 1 else "sums-queries"].values.float()
    for layer in (1, 2):
        mixed = sum(table[layer - 1, below] * outputs[below] for below in range(layer + 1))
        torch.testing.assert_close(mixed, seen[Signal("encoder", "enters", layer)], atol=1e-5, rtol=1e-5)
    if ways == 4:
        assert found["sums-queries"].values.shape == (2, 3)  # only one way behind the last layer


def test_parts_of_a_stream_show_their_sizes(make_model: ModelMaker) -> None:
    """Frac begins as pre-norm, where each output is read once; padding has no say."""
    model = make_model({"connection": "frac"})
    table = of_encoder(model, one_word())["mixing"].values
    expected = torch.ones(7, 7).double().masked_fill(torch.ones(7, 7).triu(1) > 0, torch.nan)
    torch.testing.assert_close(table, expected, equal_nan=True)
    model = drawn(model)
    padded = DeviceBatch(torch.tensor([[5, 0], [6, 2]]), torch.tensor([[1], [1]]), torch.tensor([[2], [2]]))
    both = of_encoder(model, padded)["mixing"].values
    alone = of_encoder(model, one_word())["mixing"].values
    other = of_encoder(model, DeviceBatch(torch.tensor([[6, 2]]), torch.tensor([[1]]), torch.tensor([[2]])))[
        "mixing"
    ].values
    torch.testing.assert_close(both, (alone + 2 * other) / 3, atol=1e-6, rtol=1e-6, equal_nan=True)


def test_the_command_averages_over_text(
    make_model: ModelMaker, store: Store, text: tuple[Path, Path]
) -> None:
    """With two files; without, what the text decides is left out, and it says why."""
    name = store(drawn(make_model({"connection": "mhc_lite"})))
    without = analyse_weights(name)
    assert [figure.name for figure in without.figures] == [
        "encoder-lanes",
        "encoder-composite-mix",
    ]
    assert any("not a run directory" in note for note in without.notes)
    found = analyse_weights(name, *text)
    table = {figure.name: figure for figure in found.figures}["encoder-mixing"]
    assert MEAN in table.title
    assert table.rows == ("1", "2", "3", "4", "5", "6", "result")
    assert "mean over the words" in found.measured
    assert not found.notes
    beside = store(make_model({"connection": "mhc_lite", "aggregation": "dlcl"}), "beside")
    (note,) = analyse_weights(beside, *text).notes
    assert note == "Weights of sub-layers of the encoder leave out what its aggregation adds."
