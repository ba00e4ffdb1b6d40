from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_run import run_training

from deepwire.training.log import append_record, cut_after, read_records
from deepwire.training.spec import TrainingSpec


def write(path: Path, *records: tuple[str, int]) -> None:
    for kind, update in records:
        append_record(path, {"kind": kind, "update": update, "loss": 0.1 * update})


def read(path: Path) -> list[tuple[str, int]]:
    return [(record["kind"], record["update"]) for record in map(json.loads, path.read_text().splitlines())]


def test_records_come_back_to_the_last_bit_and_what_json_does_not_have_becomes_null(tmp_path: Path) -> None:
    values = [0.1 + 0.2, 1 / 3, 1e-300, 123456789.123456789, float("nan"), float("inf")]
    for value in values:
        append_record(tmp_path / "m.jsonl", {"loss": value})
    found = [json.loads(line)["loss"] for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert found == [*values[:4], None, None]


def test_cutting_keeps_what_a_checkpoint_knows_of(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write(path, ("train", 10), ("train", 20), ("valid", 20), ("train", 30))
    cut_after(path, 20)
    assert read(path) == [("train", 10), ("train", 20), ("valid", 20)]


def test_cutting_drops_a_validation_that_will_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write(path, ("valid", 10), ("train", 20), ("valid", 20))
    cut_after(path, 20, drop_validation=True)
    assert read(path) == [("valid", 10), ("train", 20)]


@pytest.mark.parametrize("rest", ['{"kind": "train", "upd', '{"kind": "train"}', "[1]", "\x00\x00"])
def test_cutting_drops_what_a_crash_left(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "m.jsonl"
    write(path, ("train", 10))
    with path.open("a") as file:
        file.write(rest)
    cut_after(path, 10)
    assert read(path) == [("train", 10)]
    write(path, ("train", 20))
    assert read(path) == [("train", 10), ("train", 20)]


@pytest.mark.parametrize(("aggregation", "keys"), [("dwa", {"update", "encoder.dwa"}), ("last", set())])
def test_layers_are_recorded_where_there_is_something_to_record(
    make_job: Callable[..., TrainingSpec], aggregation: str, keys: set[str]
) -> None:
    """A run file may inherit the wish for weights of layers for a model without any."""
    record = {"depth_weights": 2, "gradients": 3}
    job = make_job(max_updates=4, record=record, model={"encoder": {"aggregation": aggregation}})
    run_training(job, quiet=True)
    weights, gradients = read_records(job.run.depth_weights), read_records(job.run.gradients)
    assert [each["update"] for each in weights] == ([2, 4] if keys else [])
    assert all(each.keys() == keys for each in weights)
    assert [each["update"] for each in gradients] == [3]
    assert gradients[0].keys() >= {"encoder.1", "decoder.1", "other"}
