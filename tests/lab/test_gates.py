from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import ModelMaker, Store

from deepwire.data.languages import Direction, Languages
from deepwire.errors import DataError, UsageError
from deepwire.lab.finding import Finding
from deepwire.lab.gates import analyse_gates, observe
from deepwire.lab.subject import batches, open_model, read_pairs

Text = tuple[Path, Path]
GATES = (0.25, 0.5, 0.95)


def logit(share: float) -> float:
    return math.log(share / (1 - share))


def hold(gates: Any, *values: float) -> None:
    """Set input, forget and output gate of a set to constants."""
    with torch.no_grad():
        gates.norm.weight.zero_()
        gates.norm.bias.copy_(torch.tensor([[logit(value)] * 16 for value in values]))


def rows(finding: Finding, table: int = 0) -> dict[tuple[Any, Any], tuple[Any, ...]]:
    return {(row[0], row[1]): row[2:] for row in finding.tables[table].rows}


def test_gates_set_by_hand_are_found(make_model: ModelMaker, store: Store, text: Text) -> None:
    model = make_model({"connection": "depth_lstm"})
    hold(model.encoder.connection.gates[0], *GATES)
    found = analyse_gates(store(model), *text)
    assert found.tables[0].title == "Encoder, depth-wise LSTM"
    values = rows(found)
    assert set(values) == {
        (str(layer), gate) for layer in (1, 2, 3) for gate in ("input", "forget", "output")
    }
    for layer in "123":
        # Mean, standard deviation, share closed, share open.
        assert values[layer, "input"] == pytest.approx((0.25, 0, 0, 0), abs=1e-4)
        assert values[layer, "forget"] == pytest.approx((0.5, 0, 0, 0), abs=1e-4)
        assert values[layer, "output"] == pytest.approx((0.95, 0, 0, 1), abs=1e-4)
    # What each cell keeps: forget gates of 1/2 halve it at every layer.
    reach = found.figures[1]
    assert reach.columns == ("embedding", "1", "2")
    assert [list(row) for row in reach.values] == [
        [pytest.approx(1 / 2), None, None],
        [pytest.approx(1 / 4), pytest.approx(1 / 2), None],
        [pytest.approx(1 / 8), pytest.approx(1 / 4), pytest.approx(1 / 2)],
    ]
    assert any("forget gate 1: the cell of the unit below is kept" in note for note in found.notes)


def test_padding_is_left_out(
    make_model: ModelMaker, store: Store, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model({"connection": "depth_lstm"}, {"connection": "depth_lstm"})
    name = store(model)
    subject, pairs = open_model(name), read_pairs(name, *text)
    together = list(batches(subject, pairs))
    monkeypatch.setattr("deepwire.lab.subject.BATCH_TOKENS", 1)
    alone = list(batches(subject, pairs))
    assert (len(together), len(alone)) == (1, 3)
    one, other = (observe(subject.loaded.model, read) for read in (together, alone))
    for first, second in zip(one, other, strict=True):
        again = second.statistics()
        for place, gates in first.statistics().items():
            for gate, statistics in gates.items():
                assert statistics[:3] == pytest.approx(again[place][gate][:3], abs=1e-6)
    words = sum(len(ids) for batch in alone for ids in batch.source)
    assert next(iter(one[0].statistics().values()))["input"].size == words * 16


def test_the_statistics_are_those_of_the_gates_themselves(
    make_model: ModelMaker, store: Store, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepwire.lab.subject.BATCH_TOKENS", 1)  # a sentence at a time: no padding
    model = make_model({"connection": "depth_lstm", "layers": 1})
    with torch.no_grad():
        model.encoder.connection.gates[0].norm.bias.normal_(std=2)
    name = store(model)
    subject = open_model(name)
    batch = next(batches(subject, read_pairs(name, *text)))
    inside = subject.loaded.model
    seen: list[torch.Tensor] = []
    handle = inside.encoder.connection.gates[0].register_forward_hook(
        lambda module, inputs, output: seen.append(output[0])
    )
    with torch.no_grad():
        inside.encode(batch.source)
    handle.remove()
    found = observe(inside, [batch])[0]
    sums = next(iter(found.statistics().values()))["input"]
    values = seen[0].double()
    assert sums.mean == pytest.approx(float(values.mean()), rel=1e-6)
    assert sums.deviation == pytest.approx(float(values.std(correction=0)), rel=1e-5)
    assert sums.closed == pytest.approx(float((values < 0.1).double().mean()))


@pytest.mark.parametrize(
    ("encoder", "family", "gate", "places"),
    [
        ({"connection": "runge_kutta"}, "Runge-Kutta gate", "first stage", 3),
        ({"connection": "sdu"}, "self-dependency units", "gate", 6),
        ({"connection": {"type": "sdu", "layers": 2}}, "self-dependency units", "gate", 4),
    ],
)
def test_other_gates(
    encoder: dict[str, object], family: str, gate: str, places: int,
    make_model: ModelMaker, store: Store, text: Text,
) -> None:  # fmt: skip
    model = make_model(encoder)
    for name, parameter in model.named_parameters():
        if ".gate." in name or ".units." in name:
            torch.nn.init.zeros_(parameter)
    found = analyse_gates(store(model), *text)
    assert found.tables[0].title == f"Encoder, {family}"
    assert [row[1:3] for row in found.tables[0].rows] == [(gate, pytest.approx(0.5))] * places


def test_attention_over_layers_sums_to_one(make_model: ModelMaker, store: Store, text: Text) -> None:
    found = analyse_gates(store(make_model({}, {"fusion": "mlrf"})), *text)
    chart = found.figures[0]
    assert (chart.x, chart.categories) == ("output of layer; 0: embedding", ("0", "1", "2"))
    assert [hop.name for hop in chart.series] == ["hop 1", "hop 2", "hop 3", "hop 4"]
    for hop in chart.series:
        assert sum(share or 0 for share in hop.y) == pytest.approx(1)
    assert [column.name for column in found.tables[0].columns][1::3] == [chart.x, "share below 0.1"]


def test_gates_of_each_language(make_model: ModelMaker, store: Store, text: Text) -> None:
    languages = Languages((Direction("de", "en"), Direction("en", "de")), tag="both")
    model = make_model({"connection": "depth_lstm"}, languages=languages)
    gates = model.encoder.connection.gates[0]
    with torch.no_grad():
        gates.norm.weight.zero_()
        for language, share in enumerate((0.25, 0.75)):
            gates.norm.bias[language] = logit(share)
    name = store(model, **languages.to_metadata())
    for direction, share in (("en-de", 0.25), ("de-en", 0.75)):
        found = analyse_gates(name, *text, direction=Direction.parse(direction))
        assert rows(found)["2", "forget"][0] == pytest.approx(share)
    subject = open_model(name)
    batch = next(batches(subject, read_pairs(name, *text), to="en"))
    tag = subject.loaded.vocabularies.source.size + 1
    assert batch.source[:, 0].tolist() == batch.target_input[:, 0].tolist() == [tag] * 3
    with pytest.raises(UsageError, match="has several directions"):
        analyse_gates(name, *text)


def test_what_is_missing_is_said(make_model: ModelMaker, store: Store, text: Text, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no gates over depth"):
        analyse_gates(store(make_model({})), *text)
    gated = store(make_model({"connection": "depth_lstm"}))
    with pytest.raises(UsageError, match="not a run directory"):
        analyse_gates(gated)
    with pytest.raises(UsageError, match="go together"):
        analyse_gates(gated, text[0])
    (tmp_path / "short").write_text("a dog\n")
    with pytest.raises(DataError, match="line counts differ"):
        analyse_gates(gated, text[0], tmp_path / "short")
    (tmp_path / "empty").write_text("\n\n\n")
    with pytest.raises(DataError, match="no pair has words on both sides"):
        analyse_gates(gated, text[0], tmp_path / "empty")


def test_batches_hold_what_training_reads(make_model: ModelMaker, store: Store, text: Text) -> None:
    name = store(make_model({}))
    subject = open_model(name)
    batch = next(batches(subject, read_pairs(name, *text)))
    words = subject.loaded.vocabularies.target
    assert batch.target_input[:, 0].tolist() == [1, 1, 1]
    read = [words.decode(row[1:].tolist()) for row in batch.target_input]
    assert read == ["two cats in the house", "a dog", "dog"]
    assert batch.target_output[0].tolist() == [*batch.target_input[0, 1:].tolist(), 2]
    assert batch.source[2].tolist()[1:] == [2, 0, 0, 0]
