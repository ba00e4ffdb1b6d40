"""Checkpoints of a run: everything a continuation needs, written in one step."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from deepwire.checkpoint.files import json_text, read_json, require_space
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import OPTIMIZER, STATE, write_model_files
from deepwire.checkpoint.tensors import bytes_of, read_tensors, write_tensors
from deepwire.model.translator import TranslationModel
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
        ModelError: If it is missing or damaged.
    """
    return TrainingState.from_json(read_json(folder / STATE))


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
