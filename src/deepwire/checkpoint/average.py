"""The arithmetic mean of the parameters of several models (Vaswani et al. 2017, section 6.1)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open

from deepwire.checkpoint.manifest import check_manifest, fingerprint, write_manifest
from deepwire.checkpoint.store import (
    CONFIG,
    OPTIMIZER,
    STATE,
    VOCABULARY,
    WEIGHTS,
    check_fit,
    metadata_of,
    read_config,
    require_model,
)
from deepwire.checkpoint.tensors import read_shapes, write_tensors
from deepwire.errors import ModelError
from deepwire.io.atomic import json_text, new_folder, require_space


def average_models(folders: Sequence[Path], output: Path) -> None:
    """Write the mean of several models as a model directory.

    Each parameter is summed in float64 and rounded once, to the type it has on disk.
    Everything else is copied from the last folder.

    Raises:
        ModelError: If a model is damaged, or the models differ in architecture or vocabulary.
        ResourceError: If the disk is full.
    """
    if not folders:
        raise ModelError("nothing to average: no checkpoints")
    for folder in folders:
        require_model(folder)
        check_manifest(folder, required=(WEIGHTS, CONFIG), skip=(OPTIMIZER, STATE))
    newest = folders[-1]
    record = read_config(newest)
    for folder in folders:
        _check_same_kind(folder, newest, record)
    output.parent.mkdir(parents=True, exist_ok=True)
    require_space(output.parent, 2 * (newest / WEIGHTS).stat().st_size)
    means = _means([folder / WEIGHTS for folder in folders])
    with new_folder(output) as temporary:
        write_tensors(temporary / WEIGHTS, means)
        made_from = {"average_of": [folder.name for folder in folders], "sources": sources(folders)}
        kept = {name: value for name, value in metadata_of(record).items() if name != "scores"}
        averaged = {**record, "metadata": {**kept, **made_from}}
        (temporary / CONFIG).write_text(json_text(averaged), encoding="utf-8")
        shutil.copytree(newest / VOCABULARY, temporary / VOCABULARY)
        write_manifest(temporary)


def sources(folders: Sequence[Path]) -> list[str]:
    """Fingerprints of the models an average is made from; an average is out of date when they change."""
    return [fingerprint(folder) for folder in folders]


def _means(paths: Sequence[Path]) -> dict[str, torch.Tensor]:
    means = {}
    for name in read_shapes(paths[0]):
        total: torch.Tensor | None = None
        for path in paths:
            with safe_open(path, framework="pt") as file:
                value = file.get_tensor(name)
            total = value.double() if total is None else total.add_(value)
            kind = value.dtype
        if total is not None:
            means[name] = (total / len(paths)).to(kind)
    return means


def _check_same_kind(folder: Path, newest: Path, record: dict[str, object]) -> None:
    other = read_config(folder)
    for key in ("model", "source_vocabulary", "target_vocabulary"):
        if other.get(key) != record.get(key):
            raise ModelError(f"{folder} and {newest} cannot be averaged: their {key} differs")
    check_fit(folder / WEIGHTS, read_shapes(folder / WEIGHTS), read_shapes(newest / WEIGHTS))
