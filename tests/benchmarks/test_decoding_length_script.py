"""The curve of decoding by length, on models that take no time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import decoding_length
import pytest


@pytest.mark.parametrize("beam", [1, 3])
def test_every_step_of_every_mixer_is_timed(monkeypatch, tmp_path: Path, beam: int) -> None:
    small = ("model.d_model=16", "model.heads=2", "model.feed_forward=16")
    layers = ("model.encoder.layers=1", "model.decoder.layers=1")
    options = ("--vocabulary-size", "40", "--length", "33", "--source", "5", "--batch", "2", "--threads", "1")
    where = ("--results", str(tmp_path), "--beam", str(beam), "--set", *small, *layers)
    monkeypatch.setattr(sys, "argv", ["decoding_length.py", *options, *where])
    decoding_length.main()
    (figures,) = tmp_path.glob("*.json")
    steps = json.loads(figures.read_text())["seconds_of_steps"]
    assert list(steps) == list(decoding_length.MIXERS)
    assert all(len(each) == 33 and min(each) >= 0 for each in steps.values())
    (table,) = tmp_path.glob("*.md")
    rows = [line for line in table.read_text().splitlines() if line[2:3].isdigit()]
    assert [line.split("|")[1].strip() for line in rows] == ["10", "30", "33"]
