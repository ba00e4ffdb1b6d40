"""Connections beside post-norm, on models that take no time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import connections

SMALL = ("d_model=16", "heads=8", "feed_forward=16", "encoder.layers=2", "decoder.layers=2")


def test_every_system_is_measured_beside_post_norm(monkeypatch, tmp_path: Path) -> None:
    """Also those whose layers are several kinds of things; counts are of the settings."""
    names = ["DWA", "hyper, n 2, static", "today's parts"]
    sizes = ("--rounds", "2", "--rows", "2", "--length", "3", "--steps", "2", "--vocabulary-size", "40")
    settings = [f"model.{setting}" for setting in SMALL]
    monkeypatch.setattr(
        sys, "argv", ["x", "--only", *names, *sizes, "--setting", *settings, "--results", str(tmp_path)]
    )
    connections.main()
    (figures,) = tmp_path.glob("connections*.json")
    systems = json.loads(figures.read_text())["systems"]
    assert list(systems) == ["post-norm", *names]
    for name in names:
        ratios = [systems[name][part] for part in ("training", "decoding")]
        assert all(len(each) == 2 and min(each) > 0 for each in ratios)
    (table,) = tmp_path.glob("*.md")
    rows = [line for line in table.read_text().splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows] == ["system", "post-norm", *names]
