"""Checkpoints of a run: everything a continuation needs, written in one step."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor

from deepwire.checkpoint.model_files import DamagedError, bytes_of, read_tensors, write_tensors
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import OPTIMIZER, STATE, write_model_files
from deepwire.errors import ModelError
from deepwire.io.atomic import json_text, require_space
from deepwire.io.regular_files import read_json
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.training.parallel_strategy import Snapshot
from deepwire.training.run.spec import TrainingSpec
from deepwire.training.run.state import TrainingState

_SLACK = 1_000_000


def save_checkpoint(
    spec: TrainingSpec, model: TranslationModel, snapshot: Snapshot, state: TrainingState
) -> Path:
    """Write the checkpoint of ``state`` and delete those that are no longer kept.

    Args:
        spec: What is trained, and where it is kept.
        model: Tells the architecture.
        snapshot: Parameters and moments.
        state: How far training has come.

    Raises:
        ResourceError: If the disk is full; earlier checkpoints are intact.
    """
    parameters, moments = dict(snapshot.parameters), dict(snapshot.moments)
    folder = spec.run.checkpoints_folder
    folder.mkdir(parents=True, exist_ok=True)
    require_space(folder, bytes_of(parameters) + bytes_of(moments) + _SLACK)

    def write(temporary: Path) -> None:
        metadata = {**spec.metadata, "update": state.update, "scores": state.scores}
        if spec.config.ema is not None:
            metadata["ema"] = spec.config.ema.model_dump(mode="json")
        write_model_files(temporary, model, parameters, spec.prepared.vocabularies, metadata)
        write_tensors(temporary / OPTIMIZER, moments)
        (temporary / STATE).write_text(json_text(state.to_json()), encoding="utf-8")

    keep = spec.config.checkpoint
    return spec.run.save(
        state.update,
        write,
        metric=spec.config.validation.metric,
        keep_last=keep.keep_last,
        keep_best=keep.keep_best,
    )


def load_state(folder: Path) -> TrainingState:
    """The training state in a checkpoint.

    Raises:
        DamagedError: If it is not what training writes.
        ModelError: If it cannot be read, or a newer version wrote it.
    """
    record = read_json(folder / STATE)
    if unknown := sorted(record.keys() - {one.name for one in fields(TrainingState)}):
        raise ModelError(
            f"{folder / STATE}: {', '.join(unknown)}: unknown to this version",
            "install the version of deepwire that wrote it, or a newer one",
        )
    try:
        return TrainingState.from_json(record)
    except ModelError as error:
        raise DamagedError(folder, f"{STATE}: {error.message}") from error


def load_moments(folder: Path) -> dict[str, Tensor]:
    """The moments of the optimizer in a checkpoint, in host memory.

    Raises:
        ModelError: If they are missing or damaged.
    """
    return read_tensors(folder / OPTIMIZER, torch.device("cpu"))


def newest_state(run: RunDirectory) -> TrainingState | None:
    """The state of the newest checkpoint of ``run``; None where there is no checkpoint.

    Raises:
        ModelError: If it is damaged.
    """
    checkpoints = run.checkpoints()
    return load_state(checkpoints[-1].path) if checkpoints else None
