"""Single layers: how alike depths are, what is lost without a layer, and with a linear map in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import ModelMaker, Store
from torch import nn
from torch.nn import functional

from deepwire.lab.finding import Finding
from deepwire.lab.layers import (
    LeastSquares,
    analyse_similarity,
    linearised,
    loss_of,
    losses_without_layers,
    nearest_maps,
    similarities,
)
from deepwire.lab.signals import Signal, signal_values
from deepwire.lab.subject import ReadText
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

BATCH = DeviceBatch(
    torch.tensor([[5, 6, 2], [7, 2, 0]]),
    torch.tensor([[1, 4, 6], [1, 5, 0]]),
    torch.tensor([[4, 6, 2], [5, 2, 0]]),
)
TEXT = ReadText("two pairs", [BATCH])


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
    values = signal_values(model, BATCH)
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
    """Its input is its output, and the loss stays."""
    model = drawn(make_model({"connection": "rezero"}, {"connection": "rezero"}))
    with torch.no_grad():
        model.encoder.connection.alpha.copy_(torch.tensor([0.9, 0.0, -0.7]))
    whole = loss_of(model, TEXT)
    alone = losses_without_layers(model, "encoder", TEXT)
    assert alone[1] == pytest.approx(whole, abs=1e-6)
    assert abs(alone[0] - whole) > 1e-3
    assert similarities(model, TEXT)["encoder"].layers[1] == pytest.approx(1.0)


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
    assert list(figures) == ["encoder-similarity", "decoder-similarity"]
    matrix = figures["encoder-similarity"]
    assert matrix.values[0][0] == pytest.approx(1.0)
    assert [len(row) for row in rows(finding, "encoder")] == [4] * 3
    assert [len(row) for row in rows(finding, "decoder")] == [2] * 3
    assert finding.notes == (
        "No layer of the decoder is left out: decoder.mixer lime reads what the layers below made.",
    )
    assert analyse_similarity(name, *text, sides=["decoder"]).figures[0].name == "decoder-similarity"


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_least_squares_is_that_of_the_closed_form(inputs: int, outputs: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(40, inputs, generator=generator)
    y = torch.randn(40, outputs, generator=generator) + x.sum(1, keepdim=True)
    sums = LeastSquares()
    for part in (slice(0, 7), slice(7, 40)):
        sums.add(x[part], y[part])
    fit = sums.solve()
    ones = torch.cat((x, torch.ones(40, 1)), 1).double()
    exact = torch.linalg.lstsq(ones, y.double()).solution
    torch.testing.assert_close(fit.linear.weight.double(), exact[:-1].t(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fit.linear.bias.double(), exact[-1], atol=1e-5, rtol=1e-5)
    error = (y.double() - ones @ exact).square().sum()
    spread = (y.double() - y.double().mean(0)).square().sum()
    assert fit.explained == pytest.approx(float(1 - error / spread), abs=1e-6)


SOCKETS = [
    {"connection": "pre_norm"},
    {"connection": "post_norm", "aggregation": "dlcl"},
    {"connection": "depth_lstm"},
    {"connection": "rezero"},
    {"connection": {"type": "runge_kutta", "order": 2}},
    {"connection": "post_norm", "fusion": {"type": "groups", "size": 1}},
]


def random_map(size: int = 16) -> nn.Linear:
    torch.manual_seed(3)
    linear = nn.Linear(size, size)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(size) + 0.2 * torch.randn(size, size))
        linear.bias.normal_(std=0.3)
    return linear


def words() -> DeviceBatch:
    """Twenty-four pairs, half of them shorter than the others."""
    ids = torch.randint(4, 12, (2, 24, 9), generator=torch.Generator().manual_seed(0))
    ids[:, :12, -3:] = 0
    target_input = torch.cat((torch.ones(24, 1, dtype=torch.int64), ids[1][:, :-1]), 1)
    target_input[:12, -2:] = 0
    return DeviceBatch(ids[0], target_input, ids[1])


@pytest.mark.parametrize("sockets", SOCKETS)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_layer_that_is_linear_already_is_found_exactly_and_nothing_is_lost(
    make_model: ModelMaker, sockets, side
) -> None:
    known, read = random_map(), words()
    straight = linearised(make_model(sockets, sockets), side, 2, known)
    fit = nearest_maps(straight, [side], [read])[side, 2]
    assert fit.explained == pytest.approx(1.0, abs=1e-5)
    # Where a norm comes before, its outputs depend on each other, and other weights do the same.
    if sockets == {"connection": "pre_norm"}:
        torch.testing.assert_close(fit.linear.weight, known.weight, atol=2e-3, rtol=2e-3)
    again = linearised(straight, side, 2, fit.linear)
    real = read.target_input != 0
    with torch.no_grad():
        found, wanted = (each.log_probs(read.source, read.target_input)[real] for each in (again, straight))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("sockets", SOCKETS)
def test_with_a_linear_layer_decoding_step_by_step_equals_the_full_pass(
    make_model: ModelMaker, sockets
) -> None:
    changed = linearised(make_model(sockets, sockets), "decoder", 1, random_map())
    source, target = torch.randint(4, 12, (2, 3, 6))
    with torch.no_grad():
        full = changed.log_probs(source, target)
        state = changed.start(source)
        for position in range(6):
            found, state = changed.step(target[:, position], state)
            torch.testing.assert_close(found, full[:, position], atol=1e-5, rtol=1e-5)


def test_linearise_tells_the_loss_of_each_layer_of_a_run(run: str, analyze) -> None:
    options = ("--updates", "3", "--update-tokens", "300", "--device", "cpu")
    (table,) = analyze("linearise", run, "--bleu", *options)["tables"]
    (plain,) = analyze("linearise", run, *options)["tables"]
    assert plain["rows"] == [row[:5] for row in table["rows"]]
    whole, *layers = table["rows"]
    assert [row[:2] for row in layers] == [
        [side, layer] for side in ("encoder", "decoder") for layer in (1, 2)
    ]
    assert all(row[2] - whole[2] == pytest.approx(row[3]) for row in layers)
    assert all(0 < row[4] <= 100 for row in layers)
    assert all(row[6] is None or row[6] == pytest.approx(100 * (row[5] / whole[5] - 1)) for row in layers)
