"""The comparison of toolkits: what they are told, how they are timed, and the script with deepwire alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import decoding_toolkits
import pytest
from decoding_toolkits import Entry, Round, as_table
from peers.base import Task
from peers.decoding.base import Decoder, Request
from peers.decoding.commands import Took, timed
from peers.decoding.deepwire_cli import DeepwireDecoder
from peers.decoding.words import write_corpus, write_sentences

TASK = Task("small", layers=1, d_model=16, d_ffn=32, heads=2, vocabulary=50)
REQUEST = Request(beam=3, batch=7, length=11, threads=2)
PYTHON = Path("python")


@pytest.mark.parametrize("kind", decoding_toolkits.DECODERS.values(), ids=lambda kind: kind.trainer.name)
def test_beam_batch_and_length_reach_every_peer(kind: type[Decoder], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "joey.yaml").write_text('{"data": {}}')
    command = kind(PYTHON).command(tmp_path, Path("text"), Path("output"), REQUEST)
    written = "".join(path.read_text() for path in tmp_path.glob("*.yaml"))
    everything = f"{written} {' '.join(command)}".replace(str(tmp_path), "")
    for number in (REQUEST.beam, REQUEST.batch, REQUEST.length):
        assert str(number) in everything, number


def test_every_word_is_trained_on_and_the_first_sentences_stay_the_same(tmp_path: Path) -> None:
    corpus = write_corpus(TASK, 4, tmp_path)
    words = set(Path(f"{corpus}.de").read_text().split())
    assert len(words) == TASK.vocabulary - 4
    assert words == set(Path(f"{corpus}.en").read_text().split())
    for count in (2, 5):
        write_sentences(TASK, count, 4, tmp_path / f"{count}")
    few, many = ((tmp_path / name).read_text().splitlines() for name in ("2", "5"))
    assert (len(few), len(many)) == (2, 5)
    assert few == many[:2]
    assert all(len(line.split()) == 4 and words.issuperset(line.split()) for line in many)


def steady(count: int) -> Took:
    """Five seconds for the start, then a hundred sentences a second with two threads."""
    return Took(5 + count / 100, 2 * count / 100)


class Steady(decoding_toolkits.Comparison):
    """All toolkits are alike."""

    def run(self, row: decoding_toolkits.Row, count: int) -> Took:
        return steady(count)


def test_start_up_does_not_count_and_a_round_is_long_enough(tmp_path: Path) -> None:
    comparison = Steady(tmp_path, TASK, REQUEST)
    decoder = DeepwireDecoder(PYTHON)
    row = decoding_toolkits.Row(decoder, decoder.formats[0])
    more = comparison.enough(row, seconds=10.0)
    assert 750 <= more <= 2000
    assert comparison.round(row, more).rate == pytest.approx(100)


class HeldUp(Steady):
    """Its first start takes a minute."""

    starts = 0

    def run(self, row: decoding_toolkits.Row, count: int) -> Took:
        self.starts += 1
        took = steady(count)
        return took if self.starts > 1 else took._replace(seconds=took.seconds + 60)


def test_a_round_whose_start_was_held_up_is_measured_again(tmp_path: Path) -> None:
    comparison = HeldUp(tmp_path, TASK, REQUEST)
    decoder = DeepwireDecoder(PYTHON)
    row = decoding_toolkits.Row(decoder, decoder.formats[0])
    assert comparison.round(row, 1000).rate == pytest.approx(100)
    assert comparison.starts == 4


def test_the_table_compares_with_its_first_row() -> None:
    speeds = {"deepwire": (40.0, 20.0), "peer": (10.0, 10.0)}
    rounds = [Round(name, 100, 100 / rate, 200 / rate) for name, rates in speeds.items() for rate in rates]
    entries = [Entry(name, "1.0", 5000, 12) for name in speeds]
    table = "\n".join(as_table(entries, rounds))
    assert "| deepwire | 1.0 | 5,000 | 12 | 30.00 | 20.00 | 40.00 | 15.00 | 1.00 | 1.00, 1.00 |" in table
    assert "| peer | 1.0 | 5,000 | 12 | 10.00 | 10.00 | 10.00 | 5.00 | 3.00 | 4.00, 2.00 |" in table


@pytest.mark.slow
def test_the_script_with_deepwire_alone(monkeypatch, tmp_path: Path) -> None:
    small = ("--task", "tiny", "--batch", "2", "--length", "3", "--rounds", "1", "--seconds", "0.04")
    where = ("--threads", "2", "--peers", str(tmp_path / "none"), "--results", str(tmp_path / "results"))
    monkeypatch.setattr(sys, "argv", ["decoding_toolkits.py", *small, *where, "--only", "deepwire"])
    # The script changes them for the commands that it runs; what is set here is put back.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def run(command: list[str], text: Path, log: Path, folder: Path) -> Took:
        timed(command, text, log, folder)
        return steady(len(text.read_text().splitlines()))

    monkeypatch.setattr(decoding_toolkits, "timed", run)
    decoding_toolkits.main()
    (figures,) = (tmp_path / "results").glob("decoding_toolkits_tiny*.json")
    record = json.loads(figures.read_text())
    assert [each["toolkit"] for each in record["rounds"]] == ["deepwire"]
    assert record["toolkits"][0]["steps"] == 4
    (table,) = (tmp_path / "results").glob("*.md")
    assert "| 100.00 | 100.00 | 100.00 | 50.00 |" in table.read_text()
