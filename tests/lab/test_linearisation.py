"""Layers that become linear maps: what must not change, what is known in closed form, and real text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from deepwire.cli.main import main
from deepwire.data.batches.batching import StreamPosition
from deepwire.data.languages import Direction, Languages
from deepwire.lab import linearisation
from deepwire.lab.linearisation import LeastSquares, has_cell, linearised, match, train_on_translation, width
from deepwire.training.device import DeviceBatch, DeviceUpdate

SOCKETS = [
    {"connection": "pre_norm"},
    {"connection": "post_norm", "aggregation": "dlcl"},
    {"connection": "depth_lstm"},
    {"connection": "rezero"},
    {"connection": {"type": "runge_kutta", "order": 2}},
    {"connection": "post_norm", "fusion": {"type": "groups", "size": 1}},
]
CHOICES = [(sockets, "carry") for sockets in SOCKETS] + [({"connection": "depth_lstm"}, "map")]


def update_of(words: int = 9, rows: int = 24, seed: int = 0) -> DeviceUpdate:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 12, (2, rows, words), generator=generator)
    ids[:, : rows // 2, -3:] = 0
    start = torch.ones(rows, 1, dtype=torch.int64)
    target_input = torch.cat((start, ids[1][:, :-1]), 1)
    target_input[: rows // 2, -2:] = 0
    batch = DeviceBatch(ids[0], target_input, ids[1])
    tokens = int((ids[1] != 0).sum())
    return DeviceUpdate(1, 0, tokens, (batch,), np.arange(rows), StreamPosition())


def random_map(size: int) -> nn.Linear:
    torch.manual_seed(3)
    linear = nn.Linear(size, size)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(size) + 0.2 * torch.randn(size, size))
        linear.bias.normal_(std=0.3)
    return linear


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_least_squares_is_that_of_the_closed_form(inputs: int, outputs: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(40, inputs, generator=generator)
    y = torch.randn(40, outputs, generator=generator) + x.sum(1, keepdim=True)
    sums = LeastSquares(inputs, outputs, torch.device("cpu"))
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


@pytest.mark.parametrize(("sockets", "cell"), CHOICES)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_layer_that_is_linear_already_is_found_exactly_and_nothing_is_lost(
    make_model, sockets, cell, side
) -> None:
    model = make_model(sockets, sockets)
    known = random_map(width(model, side, cell))
    straight = linearised(model, side, 2, known, cell).eval()
    update = update_of()
    fit = match(straight, side, [2], [update], cell)[2]
    assert fit.explained == pytest.approx(1.0, abs=1e-5)
    # Where a norm comes before, its outputs depend on each other, and other weights do the same.
    if sockets == {"connection": "pre_norm"}:
        torch.testing.assert_close(fit.linear.weight, known.weight, atol=2e-3, rtol=2e-3)
    again = linearised(straight, side, 2, fit.linear, cell).eval()
    batch = update.batches[0]
    real = batch.target_input != 0
    with torch.no_grad():
        found, wanted = (each.log_probs(batch.source, batch.target_input)[real] for each in (again, straight))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("sockets", "cell"), CHOICES)
def test_step_by_step_decoding_equals_the_full_pass(make_model, sockets, cell) -> None:
    model = make_model(sockets, sockets)
    changed = linearised(model, "decoder", 1, random_map(width(model, "decoder", cell)), cell).eval()
    source, target = torch.randint(4, 12, (2, 3, 6))
    with torch.no_grad():
        full = changed.log_probs(source, target)
        state = changed.start(source)
        for position in range(6):
            found, state = changed.step(target[:, position], state)
            torch.testing.assert_close(found, full[:, position], atol=1e-5, rtol=1e-5)
    assert len(state.states) == 1 * (len(changed.decoder.calls) > 1) * _mixer_calls(changed)


def _mixer_calls(model) -> int:
    return sum(call.kind == "mixer" for call in model.decoder.calls)


def test_the_map_sees_one_position_only(make_model) -> None:
    model = make_model({"connection": "pre_norm", "layers": 1}, {"connection": "pre_norm", "layers": 1})
    changed = linearised(model, "encoder", 1, random_map(16)).eval()
    one, other = torch.tensor([[5, 6, 7]]), torch.tensor([[5, 9, 10]])
    with torch.no_grad():
        torch.testing.assert_close(changed.encode(one)[0][0][:, 0], changed.encode(other)[0][0][:, 0])
        assert not torch.allclose(model.encode(one)[0][0][:, 0], model.encode(other)[0][0][:, 0])


def test_training_on_the_translation_loss_changes_the_map_alone(make_model) -> None:
    model = make_model({"connection": "depth_lstm"}, {"connection": "depth_lstm"})
    before = {name: value.clone() for name, value in model.state_dict().items()}
    linear, update = random_map(16), update_of()
    losses = train_on_translation(
        model,
        "encoder",
        2,
        linear,
        [update] * 30,
        count=30,
        rate=0.02,
        smoothing=(0.1, "uniform_wrong"),
    )
    assert len(losses) == 30
    assert losses[-1] < losses[0] - 0.01
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("connection", "cell"),
    [
        ({"type": "post_norm", "embedding_norm": True}, False),
        ({"type": "peri_ln", "embedding_norm": True}, False),
        ("collaboration", True),
    ],
)
def test_norms_of_the_embedding_may_be_those_of_languages(make_model, connection, cell: bool) -> None:
    languages = Languages((Direction("de", "en"), Direction("en", "fr")))
    sockets = {"connection": connection, "layers": 2}
    model = make_model(sockets, sockets, languages)
    assert has_cell(model, "encoder") == cell
    assert not has_cell(model, "decoder")


def linearise(run: str, capsys, *options: str) -> dict[str, Any]:
    code = main(["analyze", "linearise", run, "--json", "--device", "cpu", *options])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)["findings"][0]


def test_command_on_a_run_goes_on_where_it_was(run: str, tmp_path: Path, capsys, monkeypatch) -> None:
    options = ("--updates", "3", "--update-tokens", "300", "--folder", str(tmp_path / "kept"))
    found = linearise(run, capsys, *options)
    rows = found["tables"][0]["rows"]
    whole = rows[0][3]
    assert [(row[0], row[1], row[2]) for row in rows[1:]] == [
        (side, layer, reading)
        for side in ("encoder", "decoder")
        for layer in (1, 2)
        for reading in ("match", "translation")
    ]
    for row in rows[1:]:
        if whole:
            assert row[4] == pytest.approx(100 * (row[3] - whole) / whole)
    assert "the cell goes past" in " ".join(" ".join(found["notes"]).split()).replace("The cell", "the cell")

    (tmp_path / "kept" / "decoder-2-match.json").unlink()
    measured = []
    real = linearisation.linearised

    def watched(*arguments):
        measured.append(arguments[1:3])
        return real(*arguments)

    monkeypatch.setattr(linearisation, "train_on_translation", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr(linearisation, "linearised", watched)
    again = linearise(run, capsys, *options)
    assert measured == [("decoder", 2)]
    assert again["tables"] == found["tables"]
    # Another setting is another measurement.
    linearise(run, capsys, *options, *("--cell", "map", "--reading", "match", "--side", "encoder"))
    assert measured[1:] == [("encoder", 1), ("encoder", 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--reading", "both-of-them"], "is not one of"),
        (["--layers", "1,x"], "no list of whole numbers"),
        (["--layers", "7"], "layers 1 to 2, not 7"),
    ],
)
def test_wrong_options_are_one_line_before_the_work(
    run: str, tmp_path: Path, capsys, options, message
) -> None:
    kept = ["--folder", str(tmp_path / "kept"), "--sentences", "1"]
    assert main(["analyze", "linearise", run, *kept, *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "whole model" not in said
