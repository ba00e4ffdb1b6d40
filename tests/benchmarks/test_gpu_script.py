"""The script for GPUs, on models too small to tell anything, on the CPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gpu
import torch


def test_everything_is_measured_and_written(monkeypatch, tmp_path: Path) -> None:
    options = ("--device", "cpu", "--tiny", "--results", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gpu.py", *options])
    gpu.main()
    (figures,) = tmp_path.glob("*.json")
    record = json.loads(figures.read_text())
    assert record["left_out"] == []
    assert {row["model"] for row in record["training"]} == set(gpu.MODELS)
    assert all(
        row["tokens_per_second"] > 0 and row["utilisation_of_measured"] > 0 for row in record["training"]
    )
    assert all(row["loss"] < 0.01 for row in record["equality"])
    assert all(row["memory_gib"] > 0 for row in (*record["training"], *record["decoding"]))
    assert [row["beam"] for row in record["decoding"]] == [1, 1, 1, 4]
    (table,) = tmp_path.glob("*.md")
    text = table.read_text()
    for title in ("## Training", "## Equality", "## Loss", "## Decoding", "too small to tell anything"):
        assert title in text


def test_every_translation_is_as_long_as_its_source() -> None:
    torch.manual_seed(1)
    config = gpu.load_run_file("papers/neutron-base", gpu.TINY.overrides).config.model
    model = gpu.build_model(config, 64, 64).eval()
    gpu.end_late(model)
    test = [[5, 6, 7, 2], [9, 2], [8, 8, 8, 8, 8, 2]]
    for beam in (1, 4):
        settings = gpu.DecodingConfig(beam=beam)
        made = gpu.decode(model, test, [[2, 0, 1]], settings, torch.device("cpu"))
        assert [len(ids) for ids in made] == [5, 3, 1]
