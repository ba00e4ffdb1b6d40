"""The comparison of toolkits: what they are told, how they are timed, and the script with deepwire alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import decoding_toolkits
import pytest
from decoding_toolkits import Entry, Round, as_table
from peers.base import Request, Task, Toolkit
from peers.deepwire_cli import Deepwire
from training_speed import PEERS

TASK = Task("small", layers=1, d_model=16, d_ffn=32, heads=2, vocabulary=50)
REQUEST = Request(beam=3, batch=7, length=11, threads=2)
PYTHON = Path("python")


@pytest.mark.parametrize("kind", [Deepwire, *(kind for kind, _ in PEERS)], ids=lambda kind: kind.name)
def test_beam_batch_and_length_reach_every_toolkit(kind: type[Toolkit], tmp_path: Path) -> None:
    command = " ".join(kind(PYTHON).translate(tmp_path, Path("text"), Path("output"), REQUEST))
    batch = REQUEST.batch * (REQUEST.length + 1) * REQUEST.beam if kind is Deepwire else REQUEST.batch
    for number in (REQUEST.beam, batch, *([] if kind is Deepwire else [REQUEST.length])):
        assert str(number) in command.replace(str(tmp_path), ""), number


def test_every_word_is_trained_on_and_the_first_sentences_stay_the_same(tmp_path: Path) -> None:
    corpus = decoding_toolkits.write_corpus(TASK, 4, tmp_path)
    words = set(Path(f"{corpus}.de").read_text().split())
    assert len(words) == TASK.vocabulary - 4
    assert words == set(Path(f"{corpus}.en").read_text().split())
    for count in (2, 5):
        decoding_toolkits.write_sentences(TASK, count, 4, tmp_path / f"{count}")
    few, many = ((tmp_path / name).read_text().splitlines() for name in ("2", "5"))
    assert few == many[:2]
    assert len(many) == 5
    assert all(len(line.split()) == 4 and words.issuperset(line.split()) for line in many)


def test_the_table_compares_with_its_first_row() -> None:
    speeds = {"deepwire": (40.0, 20.0), "peer": (10.0, 10.0)}
    rounds = [Round(name, 100, 100 / rate, 200 / rate) for name, rates in speeds.items() for rate in rates]
    entries = [Entry(name, "1.0", 5000, 12) for name in speeds]
    table = "\n".join(as_table(entries, rounds))
    assert "| deepwire | 1.0 | 5,000 | 12 | 30.00 | 20.00 | 40.00 | 15.00 | 1.00 | 1.00, 1.00 |" in table
    assert "| peer | 1.0 | 5,000 | 12 | 10.00 | 10.00 | 10.00 | 5.00 | 3.00 | 4.00, 2.00 |" in table


@pytest.mark.slow
def test_the_script_with_deepwire_alone(monkeypatch, tmp_path: Path) -> None:
    """Five seconds for the start, then a hundred sentences a second: start-up does not count."""
    small = ("--task", "tiny", "--batch", "2", "--length", "3", "--rounds", "1", "--sentences", "4")
    where = ("--threads", "2", "--peers", str(tmp_path / "none"), "--results", str(tmp_path / "results"))
    monkeypatch.setattr(sys, "argv", ["decoding_toolkits.py", *small, *where, "--only", "deepwire"])
    # The script changes them for the commands that it runs; what is set here is put back.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    timed = decoding_toolkits.timed

    def run(command: list[str], text: Path, log: Path, folder: Path) -> tuple[float, float]:
        timed(command, text, log, folder)
        count = len(text.read_text().splitlines())
        return 5 + count / 100, 2 * count / 100

    monkeypatch.setattr(decoding_toolkits, "timed", run)
    decoding_toolkits.main()
    (figures,) = (tmp_path / "results").glob("decoding_toolkits_tiny*.json")
    record = json.loads(figures.read_text())
    assert [each["toolkit"] for each in record["rounds"]] == ["deepwire"]
    assert record["toolkits"][0]["steps"] == 4
    (table,) = (tmp_path / "results").glob("*.md")
    assert "| 100.00 | 100.00 | 100.00 | 50.00 |" in table.read_text()
