"""The corpora of the memory benchmark are as large as asked for, and all pairs differ."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import corpus_memory
import pytest


def test_pairs_differ_and_belong_together(tmp_path: Path) -> None:
    written = corpus_memory.write_corpus(tmp_path, 3000)
    sides = {side: (tmp_path / f"train.{side}").read_text().split("\n")[:-1] for side in ("de", "en")}
    assert [len(lines) for lines in sides.values()] == [3000, 3000]
    assert len(set(zip(*sides.values(), strict=True))) == 3000
    assert written == sum((tmp_path / f"train.{side}").stat().st_size for side in sides)
    # A larger corpus begins with the smaller one, and each line is two lines of the text.
    corpus_memory.write_corpus(tmp_path, 3100)
    assert (tmp_path / "train.de").read_text().split("\n")[:3000] == sides["de"]
    text = set(corpus_memory.read("train.de"))
    line = sides["de"][7]
    assert any(line[:cut] in text and line[cut + 1 :] in text for cut in range(len(line)))


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("500k", 500_000), ("20M", 20_000_000)])
def test_sizes(text: str, number: int) -> None:
    assert corpus_memory.count(text) == number


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the counts of Linux")
def test_a_command_is_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that reads a pipe: it goes on until its memory has been seen."""
    pipe, resident = tmp_path / "pipe", corpus_memory.resident
    os.mkfifo(pipe)
    writers: list[threading.Thread] = []

    def seen(process: int) -> tuple[int, int]:
        sizes = resident(process)
        if sizes[0] > 2_000_000 and not writers:
            writers.append(threading.Thread(target=pipe.write_text, args=("a\tb\n",)))
            writers[0].start()
        return sizes

    monkeypatch.setattr(corpus_memory, "resident", seen)
    found = corpus_memory.watched(["data", "check", "--tsv", str(pipe)], cores=1)
    assert found.seconds > 0
    assert found.anonymous > 2_000_000
    writers[0].join()
    with pytest.raises(SystemExit, match="No such command"):
        corpus_memory.watched(["nonsense"], cores=1)
