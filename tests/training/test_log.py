from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from deepwire.training.log import RecordFile, cut_after


def write(path: Path, *records: tuple[str, int]) -> None:
    with closing(RecordFile(path)) as log:
        for kind, update in records:
            log.write({"kind": kind, "update": update, "loss": 0.1 * update})


def read(path: Path) -> list[tuple[str, int]]:
    return [(record["kind"], record["update"]) for record in map(json.loads, path.read_text().splitlines())]


def test_records_come_back_to_the_last_bit(tmp_path: Path) -> None:
    values = [0.1 + 0.2, 1 / 3, 1e-300, 123456789.123456789]
    with closing(RecordFile(tmp_path / "m.jsonl")) as log:
        for value in values:
            log.write({"loss": value})
    assert [json.loads(line)["loss"] for line in (tmp_path / "m.jsonl").read_text().splitlines()] == values


def test_numbers_that_json_does_not_have_become_null(tmp_path: Path) -> None:
    with closing(RecordFile(tmp_path / "m.jsonl")) as log:
        log.write({"loss": float("nan"), "perplexity": float("inf"), "update": 1})
    assert json.loads((tmp_path / "m.jsonl").read_text()) == {"loss": None, "perplexity": None, "update": 1}


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


def test_nothing_to_cut_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    cut_after(path, 5)
    assert not path.exists()
    write(path, ("train", 10))
    before = path.stat().st_ino
    cut_after(path, 10)
    assert path.stat().st_ino == before
