"""The script for GPUs, on models too small to tell anything, on the CPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gpu
import pytest
import torch


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments, "--results", str(folder)])
    gpu.main()
    (figures,) = folder.glob("*.json")
    record: dict[str, Any] = json.loads(figures.read_text())
    return record


def test_everything_is_measured_and_written(monkeypatch, tmp_path: Path) -> None:
    models = ("--models", "Transformer base", "MHPLSTM base")
    record = run(monkeypatch, tmp_path, "--device", "cpu", "--tiny", "--compile", "off", *models)
    assert [row["model"] for row in record["training"]] == list(models[1:])
    assert all(
        row["tokens_per_second"] > 0 and row["utilisation_of_measured"] > 0 for row in record["training"]
    )
    assert all(row["memory_gib"] > 0 for row in (*record["training"], *record["decoding"]))
    assert [row["beam"] for row in record["decoding"]] == [1, 4, 1, 4]
    assert min(record["recurrence"][0][name] for name in ("forward_ms", "both_ms", "looped_ms")) > 0
    (table,) = tmp_path.glob("*.md")
    text = table.read_text()
    for title in ("## Training", "## Recurrence", "## Decoding", "too small to tell anything"):
        assert title in text
    assert text.count("| MHPLSTM base |") == 3


def test_a_further_run_of_the_day_adds_to_the_record_and_replaces_rows(monkeypatch, tmp_path: Path) -> None:
    options = ("--device", "cpu", "--tiny", "--only", "decoding", "--models", "MHPLSTM base", "--beams")
    first = run(monkeypatch, tmp_path, *options, "1", "2")
    second = run(monkeypatch, tmp_path, *options, "2", "3")
    assert [row["beam"] for row in second["decoding"]] == [1, 2, 3]
    assert second["decoding"][0] == first["decoding"][0]
    assert second["decoding"][1] != first["decoding"][1]


@pytest.mark.slow
def test_training_is_measured_compiled_too(monkeypatch, tmp_path: Path) -> None:
    options = ("--only", "training", "--models", "Transformer base", "--backend", "eager")
    record = run(monkeypatch, tmp_path, "--device", "cpu", "--tiny", *options)
    assert [row["compiled"] for row in record["training"]] == [False, True]


def test_every_model_of_the_script_can_be_kept_from_ending() -> None:
    """Random weights must not end a translation, so each model needs an output bias."""
    for recipe in gpu.MODELS.values():
        assert gpu.load_run_file(recipe, ()).config.model.bias.output


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
