"""The size and coverage of shortlists, on a text in which every word has one translation."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import shortlist_size


def test_a_shortlist_has_the_translations_of_its_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(1)
    numbers = [[draw.randrange(40) for _ in range(6)] for _ in range(130)]
    files = {"source": "", "target": ""}
    for side in files:
        files[side] = str(tmp_path / side)
        lines = (" ".join(f"{side[0]}{number:02d}" for number in line) for line in numbers)
        Path(files[side]).write_text("".join(f"{line}\n" for line in lines))
    texts = ("--source", files["source"], "--target", files["target"])
    heldout = ("--text", files["source"], "--reference", files["target"])
    sizes = ("--vocabulary-size", "300", "--best", "8", "--first", "0")
    monkeypatch.setattr(sys, "argv", ["shortlist_size.py", *texts, *heldout, *sizes])
    shortlist_size.main()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[4] for row in rows] == ["1", "64"]
    alone, together = (int(row[5]) for row in rows)
    assert 4 < alone < together <= 300
    assert all(float(row[6].rstrip("%")) > 95 for row in rows)
