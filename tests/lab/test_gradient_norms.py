from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.cli.main import main
from deepwire.errors import DataError, UsageError
from deepwire.lab.signals import analyse_gradients
from deepwire.lab.weights import analyse_weights

RECORD = "{gradients: 2, depth_weights: 3}"
CHANGES = [
    "model.encoder={layers: 2, connection: depth_lstm, fusion: {type: groups, size: 1}}",
    "model.decoder={layers: 2, aggregation: dlcl}",
    "training.validation.every=4",
]


@pytest.fixture(scope="module")
def recorded(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run with records of gradients and weights."""
    return train_in(tmp_path_factory.mktemp("recorded") / "run", corpus, record=RECORD)


def train_in(folder: Path, corpus: Path, **settings: object) -> RunDirectory:
    """Trains, or goes on."""
    changed = {"max_updates": 12, "batch_tokens": 100, "log_every": 1, "clip_norm": 0.01, **settings}
    given = [f"run={folder}", *CHANGES, f"data.prepared={corpus / 'prepared'}"]
    given += [f"training.{key}={value}" for key, value in changed.items()]
    assert main(["train", str(corpus / "small.yaml"), *given, "-q"]) == 0
    return RunDirectory(folder)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_recorded_lengths_are_those_of_the_whole_gradient_before_clipping(recorded: RunDirectory) -> None:
    found = records(recorded.gradients)
    assert [record["update"] for record in found] == [2, 4, 6, 8, 10, 12]
    logged = {
        record["update"]: record["gradient_norm"]
        for record in records(recorded.metrics)
        if record["kind"] == "train"
    }
    for record in found:
        parts = [value for key, value in record.items() if key != "update"]
        whole = sum(float(part) ** 2 for part in parts) ** 0.5
        assert whole == pytest.approx(logged[record["update"]], rel=1e-5)
        assert whole > 0.01  # it was clipped after it was recorded
    assert list(found[0]) == [
        "update", "encoder.1", "encoder.2", "encoder.rest", "decoder.1", "decoder.2", "decoder.rest", "other",
    ]  # fmt: skip


def test_an_interrupted_run_has_every_record_once(
    recorded: RunDirectory, corpus: Path, tmp_path: Path
) -> None:
    again = train_in(tmp_path / "again", corpus, record=RECORD, max_updates=7)
    # A crash after update 10: records that no checkpoint knows of.
    for path, update in ((again.gradients, 8), (again.depth_weights, 9)):
        with path.open("a") as file:
            file.write(json.dumps({"update": update}) + "\n" + '{"upda')
    train_in(tmp_path / "again", corpus, record=RECORD)
    for kind in ("gradients", "depth_weights"):
        assert records(getattr(again, kind)) == records(getattr(recorded, kind))


def test_weights_are_those_of_the_model(recorded: RunDirectory) -> None:
    found = records(recorded.depth_weights)
    assert [record["update"] for record in found] == [3, 6, 9, 12]
    finding = analyse_weights(f"{recorded.path}@last")
    figures = {figure.name: figure for figure in finding.figures}
    gates = figures["encoder-group-gates"]
    assert found[-1]["encoder.group-gates"] == [pytest.approx(gates.series[0].y)]
    curves = figures["decoder-dlcl-over-training"]
    assert curves.series[0].x == (3, 6, 9, 12)
    assert found[0]["decoder.dlcl"][0][1:] == [None, None]


def test_the_finding_shows_what_was_recorded(recorded: RunDirectory) -> None:
    finding = analyse_gradients(str(recorded.path))
    found = records(recorded.gradients)
    encoder, decoder, layers = finding.figures
    assert [one.name for one in encoder.series] == ["layer 1", "layer 2"]
    assert list(encoder.series[1].y) == [record["encoder.2"] for record in found]
    assert list(decoder.series[0].x) == [record["update"] for record in found]
    middle = sorted(float(record["encoder.1"]) for record in found)
    assert layers.series[0].y[0] == pytest.approx((middle[2] + middle[3]) / 2)
    assert "6 of its updates" in finding.measured


def test_what_is_missing_is_said(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such run"):
        analyse_gradients(str(tmp_path / "nowhere"))
    run = train_in(tmp_path / "run", corpus, max_updates=2)
    with pytest.raises(UsageError, match="recorded no gradients") as caught:
        analyse_gradients(str(run.path))
    assert "training.record.gradients" in caught.value.hint
    run.gradients.write_text('nonsense\n{"update": 2}\n')
    with pytest.raises(DataError, match=r"gradients\.jsonl:1: is not JSON"):
        analyse_gradients(str(run.path))
    run.gradients.write_text('{"encoder.1": 2}\n')
    with pytest.raises(DataError, match="a record has no update"):
        analyse_gradients(str(run.path))
