"""The speed of exported models: all programs translate the same sentences to the same words."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import export_speed
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytest.importorskip("ctranslate2")


@pytest.mark.slow
def test_every_program_translates_and_is_timed(monkeypatch, tmp_path: Path) -> None:
    small = ("model.d_model=16", "model.heads=2", "model.feed_forward=16")
    layers = ("model.encoder.layers=1", "model.decoder.layers=1")
    options = ("--vocabulary-size", "40", "--length", "4", "--sentences", "5", "--rounds", "1")
    batches = ("--beam", "2", "--batch", "3", "--formats", "fp32", "--threads", "1")
    where = ("--results", str(tmp_path / "results"), "--note", "on a busy machine")
    monkeypatch.setattr(
        sys, "argv", ["export_speed.py", *options, *batches, *where, "--set", *small, *layers]
    )
    export_speed.main()
    (figures,) = (tmp_path / "results").glob("export_speed_random*.json")
    record = json.loads(figures.read_text())
    names = [each["toolkit"] for each in record["rounds"]]
    float32 = ["deepwire fp32", "onnxruntime float32", "CTranslate2 float32"]
    assert names == [*float32[:2], "onnxruntime int8", float32[2], "CTranslate2 int8"]
    assert all(each["seconds"] > 0 and each["cpu_seconds"] > 0 for each in record["rounds"])
    assert "tmp" not in json.dumps(record["origin"])
    (table,) = (tmp_path / "results").glob("export_speed_random*.md")
    rows = {row.split(" | ")[2]: row for row in table.read_text().splitlines() if row.startswith("| 2")}
    # CTranslate2's probabilities are of the words that may come, which shows with 40 words.
    assert all(rows[name].endswith("| 100.0% |") for name in float32[:2])
    assert "on a busy machine" in table.read_text()
