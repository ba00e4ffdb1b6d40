"""Whether deep stacks train: an interrupted measurement continues, and each system has its start."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import depth
import pytest

SMALL = ("--updates", "4", "--batch-tokens", "64", "--width", "16", "--warmup", "2", "--threads", "1")


@pytest.fixture
def shallow(monkeypatch):
    """The systems with one layer a stack."""
    systems = {name: (1, 1, parts) for name, (_, _, parts) in depth.SYSTEMS.items()}
    monkeypatch.setattr(depth, "SYSTEMS", systems)


def run(monkeypatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["x", *SMALL, *options])
    depth.main()


def test_a_measurement_continues_where_it_ended(monkeypatch, tmp_path: Path, shallow) -> None:
    """Systems that the file holds are not trained again; each kind of system begins in its own way."""
    figures = tmp_path / "depth.json"
    names = ["24-24 pre-norm", "24-24 DeepNorm"]
    run(monkeypatch, "--only", names[0], "--json", str(figures))
    first = json.loads(figures.read_text())["results"]
    run(monkeypatch, "--only", *names, "--json", str(figures))
    both = json.loads(figures.read_text())["results"]
    assert both[0] == first[0]  # the seconds too: it was not measured again
    assert [result["name"] for result in both] == names
    assert both[0]["start"] == {"initialization": "depth_scaled", "rate": 0.002}
    assert both[1]["start"] == {"initialization": "deepnorm", "rate": 0.001}
    rows = [line for line in figures.with_suffix(".md").read_text().splitlines() if line.startswith("| ")]
    assert {row.split("|")[1].strip() for row in rows[2:]} == {"pre-norm", "DeepNorm"}


def test_figures_of_other_options_are_not_mixed(monkeypatch, tmp_path: Path, shallow) -> None:
    """A table compares like with like."""
    figures = tmp_path / "depth.json"
    run(monkeypatch, "--only", "24-24 pre-norm", "--json", str(figures))
    with pytest.raises(SystemExit, match="other options"):
        run(monkeypatch, "--only", "24-24 DWA", "--seed", "2", "--json", str(figures))
