"""Training by length, on models that take no time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import training_length

SMALL = "model.d_model=16,model.heads=2,model.feed_forward=16,model.encoder.layers=1,model.decoder.layers=1"


def test_every_model_is_timed_at_every_length(monkeypatch, tmp_path: Path) -> None:
    models = [f"papers/mhplstm-2021/{name},{SMALL}" for name in ("transformer-6-6", "mhplstm-6-6")]
    sizes = ("--lengths", "4", "9", "--tokens", "20", "--rounds", "2", "--vocabulary-size", "40")
    monkeypatch.setattr(sys, "argv", ["x", *models, *sizes, "--results", str(tmp_path), "--note", "Note."])
    training_length.main()
    (figures,) = tmp_path.glob("training_length_*.json")
    rates = json.loads(figures.read_text())["rates"]
    assert {length: list(found) for length, found in rates.items()} == {"4": models, "9": models}
    assert all(len(each) == 2 and min(each) > 0 for found in rates.values() for each in found.values())
    (table,) = tmp_path.glob("*.md")
    rows = [line.split("|") for line in table.read_text().splitlines() if line.startswith("| papers")]
    assert [row[1].strip() for row in rows] == models
    first, second = (float(row[3].split("(")[0]) for row in rows)
    assert float(rows[1][3].split("(")[1].rstrip(" )")) == pytest.approx(second / first, abs=0.02)
