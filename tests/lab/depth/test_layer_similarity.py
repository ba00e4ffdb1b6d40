"""How alike depths are, and what is lost without a layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from deepwire.lab.depth.layer_similarity import (
    analyse_similarity,
    layers_left_out,
    loss_of,
    similarities,
)
from deepwire.lab.internals.signal_sizes import Signal, signal_values
from deepwire.lab.report.finding import Finding, HeatMap, LineChart
from deepwire.lab.subject.document_text import ReadText
from deepwire.lab.subject.model_and_text import PairBatch
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import (
    batch,
    check_causality,
    check_padding,
    check_prompts,
    check_selection,
    check_steps,
    small_model,
)
from deepwire.training.device import DeviceBatch

ModelMaker = Callable[..., TranslationModel]
Store = Callable[..., str]
BATCH = PairBatch(
    torch.tensor([[5, 6, 2], [7, 2, 0]]),
    torch.tensor([[1, 4, 6], [1, 5, 0]]),
    torch.tensor([[4, 6, 2], [5, 2, 0]]),
    (0, 1),
)
TEXT = ReadText("two pairs", True, lambda: iter([BATCH]))


def rows(finding: Finding, side: str) -> list[tuple[object, ...]]:
    """Of the table of a stack."""
    (table,) = (table for table in finding.tables if table.title.lower().startswith(side))
    return list(table.rows)


def drawn(model: TranslationModel) -> TranslationModel:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def test_cosines_of_streams_at_real_tokens(make_model: ModelMaker) -> None:
    """Between depths, and between what enters a layer and leaves it, which differ with an aggregation."""
    model = drawn(make_model({"aggregation": "dlcl"}))
    found = similarities(model, TEXT)["encoder"]
    values = signal_values(model, DeviceBatch(BATCH.source, BATCH.target_input, BATCH.target_output))
    streams = [values[Signal("encoder", "embedding")]]
    streams += [values[Signal("encoder", "output", layer)] for layer in range(3)]
    assert len(streams[0]) == 5  # words, no padding
    for first in range(4):
        for second in range(4):
            cosine = functional.cosine_similarity(streams[first], streams[second]).mean()
            assert found.depths[first, second] == pytest.approx(float(cosine), abs=1e-5)
    entering = values[Signal("encoder", "enters", 2)]
    assert found.layers[2] == pytest.approx(
        float(functional.cosine_similarity(entering, streams[3]).mean()), abs=1e-5
    )
    assert abs(found.layers[2] - found.depths[2, 3]) > 1e-3


def test_a_layer_that_does_nothing_can_go(make_model: ModelMaker) -> None:
    """Its input is its output, and the loss stays; the others cost, alone and together."""
    model = drawn(make_model({"connection": "rezero"}, {"connection": "rezero"}))
    with torch.no_grad():
        model.encoder.connection.alpha.copy_(torch.tensor([0.9, 0.0, -0.7]))
    whole = loss_of(model, TEXT)
    found = layers_left_out(model, "encoder", TEXT, lambda _: None)
    assert found.alone[1] == pytest.approx(whole, abs=1e-6)
    assert abs(found.alone[0] - whole) > 1e-3
    assert similarities(model, TEXT)["encoder"].layers[1] == pytest.approx(1.0)
    # The two cheapest together are what their scales at zero give.
    assert sorted(found.order) == [1, 2, 3]
    with torch.no_grad():
        for layer in found.order[:2]:
            model.encoder.connection.alpha[layer - 1] = 0.0
    assert found.together[1] == pytest.approx(loss_of(model, TEXT), abs=1e-6)
    assert len(found.together) == 2


@pytest.mark.parametrize("connection", ["pre_norm", "depth_lstm", "hyper", "attn_res"])
def test_decoding_without_a_layer_is_the_whole_pass_without_it(connection: str) -> None:
    """Step by step, behind prompts, and with hypotheses reordered and dropped."""
    model = small_model({"decoder": {"connection": connection, "mixer": ["gru", "self_attention"]}}).double()
    less = model.with_stacks(decoder=model.stack("decoder").without([1]))
    with torch.no_grad():
        for check in (check_padding, check_causality, check_steps, check_prompts, check_selection):
            check(less)
        source, target, _ = batch()
        assert not torch.allclose(less.log_probs(source, target), model.log_probs(source, target), atol=1e-4)


def test_finding(make_model: ModelMaker, store: Store, text: tuple[Path, Path]) -> None:
    """A table and figures for each stack; what cannot be left out is only compared, and it says why."""
    name = store(drawn(make_model({}, {"layers": 3, "mixer": "lime"})))
    finding = analyse_similarity(name, *text)
    figures = {figure.name: figure for figure in finding.figures}
    assert list(figures) == ["encoder-similarity", "encoder-left-out", "decoder-similarity"]
    matrix = figures["encoder-similarity"]
    assert isinstance(matrix, HeatMap)
    assert matrix.values[0][0] == pytest.approx(1.0)
    curve = figures["encoder-left-out"]
    assert isinstance(curve, LineChart)
    assert curve.series[0].x == (0, 1, 2)
    assert [len(row) for row in rows(finding, "encoder")] == [5] * 3
    assert sorted(str(row[4]) for row in rows(finding, "encoder")) == ["1", "2", "3"]
    assert [len(row) for row in rows(finding, "decoder")] == [2] * 3
    assert finding.notes == (
        "No layer of the decoder is left out: decoder.mixer lime reads what the layers below made.",
    )
    assert analyse_similarity(name, *text, sides=["decoder"]).figures[0].name == "decoder-similarity"
