"""Finds the model directory that a MODEL name stands for; `RUN@avg5` averages checkpoints."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from safetensors import safe_open

from deepwire.checkpoint.model_files import (
    check_manifest,
    fingerprint,
    read_shapes,
    write_manifest,
    write_tensors,
)
from deepwire.checkpoint.run_directory import LOCK, Checkpoint, RunDirectory, regular
from deepwire.checkpoint.store import (
    CONFIG,
    OPTIMIZER,
    STATE,
    VOCABULARY,
    WEIGHTS,
    check_fit,
    language_names,
    metadata_of,
    read_config,
    read_vocabularies,
    require_finite,
    require_model,
)
from deepwire.config.counts import counted
from deepwire.data.languages import named_direction
from deepwire.errors import ModelError
from deepwire.io.atomic import disk_errors, json_text, new_folder, require_space
from deepwire.io.regular_files import acquire_lock, cannot_read


def average_models(folders: Sequence[Path], output: Path) -> None:
    """Write the mean of several models as a model directory.

    Each parameter is summed in float64 and rounded once, to the type it has on disk.
    Everything else is copied from the last folder.

    Raises:
        ModelError: If a model is damaged or not finite, or they differ in architecture, vocabulary or
            languages.
        ResourceError: If the disk is full.
    """
    if not folders:
        raise ModelError("nothing to average: no checkpoints")
    for folder in folders:
        require_model(folder)
        check_manifest(folder, required=(WEIGHTS, CONFIG), skip=(OPTIMIZER, STATE))
    newest = folders[-1]
    record = read_config(newest)
    digest = read_vocabularies(newest).digest
    for folder in folders[:-1]:
        _require_same_kind(folder, newest, record, digest)
    output.parent.mkdir(parents=True, exist_ok=True)
    require_space(output.parent, 2 * (newest / WEIGHTS).stat().st_size)
    means = _means(folders)
    with new_folder(output) as temporary:
        write_tensors(temporary / WEIGHTS, means)
        made_from = {"average_of": [folder.name for folder in folders], "sources": sources(folders)}
        without_scores = {name: value for name, value in metadata_of(record).items() if name != "scores"}
        averaged = {**record, "metadata": {**without_scores, **made_from}}
        (temporary / CONFIG).write_text(json_text(averaged), encoding="utf-8")
        shutil.copytree(newest / VOCABULARY, temporary / VOCABULARY)
        write_manifest(temporary)


def sources(folders: Sequence[Path]) -> list[str]:
    """Fingerprints of models; an average is out of date when those of its models change."""
    return [fingerprint(folder) for folder in folders]


def _means(folders: Sequence[Path]) -> dict[str, torch.Tensor]:
    means = {}
    for name in read_shapes(folders[0] / WEIGHTS):
        total: torch.Tensor | None = None
        for folder in folders:
            with safe_open(folder / WEIGHTS, framework="pt") as file:
                value = file.get_tensor(name)
            require_finite(folder, name, value)
            total = value.double() if total is None else total.add_(value)
            kind = value.dtype
        if total is not None:
            means[name] = (total / len(folders)).to(kind)
    return means


def _require_same_kind(folder: Path, newest: Path, record: dict[str, object], digest: str) -> None:
    """Refuse a model of another architecture, vocabulary or languages than `newest`.

    `record` and `digest` are the configuration and the vocabularies' digest of `newest`.
    """
    other, refused = read_config(folder), f"{folder} and {newest} cannot be averaged"
    for key in ("model", "source_vocabulary", "target_vocabulary"):
        if other.get(key) != record.get(key):
            raise ModelError(f"{refused}: their {key} differs")
    if read_vocabularies(folder).digest != digest:
        raise ModelError(
            f"{refused}: they have different vocabularies", "average models trained on one prepared corpus"
        )
    if language_names(metadata_of(other)) != language_names(metadata_of(record)):
        raise ModelError(
            f"{refused}: they have different languages, or in another order",
            "average models trained with the same data.directions",
        )
    if len(named := {named_direction(metadata_of(each)) for each in (other, record)} - {None}) > 1:
        raise ModelError(f"{refused}: they translate {' and '.join(sorted(map(str, named)))}")
    check_fit(folder / WEIGHTS, read_shapes(folder / WEIGHTS), read_shapes(newest / WEIGHTS))


_CONTINUE = "the same deepwire train command starts or continues it"
_FORMS = "RUN, RUN@best, RUN@last, RUN@update-2000 or RUN@avg5"


def find_model(name: str) -> Path:
    """The model directory that a MODEL name stands for.

    A run directory stands for its best checkpoint, or the newest where nothing was scored. ``RUN@best``,
    ``RUN@last`` and ``RUN@update-2000`` name one. ``RUN@avg5`` is the average of the last five, made on first
    use and kept until a newer checkpoint appears. A model directory stands for itself.

    Raises:
        ModelError: If there is no such model, or no record says which checkpoint is the best.
        UnreadableError: If it is in a folder that may not be read.
    """
    try:
        return _resolve(name)
    except PermissionError as error:
        raise cannot_read(Path(error.filename or name), error) from error


def _resolve(name: str) -> Path:
    path = Path(name)
    if path.exists() or "@" not in path.name:
        return _model_in(path)
    run_name, _, choice = name.rpartition("@")
    run = RunDirectory(Path(run_name))
    checkpoints = _checkpoints(run, name)
    if choice == "best":
        best = _best(run, name)
        if not best.scores:
            raise ModelError(
                f"{name}: nothing was validated yet", f"the newest checkpoint is {run.path}@last"
            )
        return best.path
    if choice == "last":
        return checkpoints[-1].path
    if match := re.fullmatch(r"update-(\d+)", choice):
        return _at_update(run, checkpoints, int(match[1]))
    if match := re.fullmatch(r"avg([1-9]\d{0,4})", choice):
        return averaged(run, int(match[1]))
    raise ModelError(f"{name}: no such choice @{choice}", f"a model of a run is {_FORMS}")


def averaged(run: RunDirectory, count: int) -> Path:
    """The average of the last ``count`` checkpoints of ``run``; reused while those are still the last.

    One process makes it. Others that want it wait, and find it made.

    Raises:
        ModelError: If the run has fewer checkpoints.
        ResourceError: If the folder of averages cannot be written.
    """
    folders = last_checkpoints(run, count)
    target = run.averages / f"avg{count}"
    if _up_to_date(target, folders):
        return target
    with disk_errors(run.averages):
        run.averages.mkdir(exist_ok=True)
        lock = acquire_lock(run.averages / LOCK, lambda holder: _warn(f"{target}: waiting for {holder}"))
    with lock:
        if not _up_to_date(target, folders):
            average_models(folders, target)
    return target


def last_checkpoints(run: RunDirectory, count: int) -> list[Path]:
    """Folders of the last ``count`` checkpoints, the oldest first, without an interim one.

    Raises:
        ModelError: If the run has fewer.
    """
    there = _checkpoints(run, str(run.path))
    checkpoints = regular(there)
    if len(checkpoints) < count:
        besides = " besides that of an interruption" if len(checkpoints) < len(there) else ""
        fewer = f"average fewer: {run.path}@avg{len(checkpoints)}; or " if checkpoints else ""
        has = counted(len(checkpoints), "checkpoint")
        raise ModelError(
            f"{run.path}: has {has}{besides}, so no {count} can be averaged",
            f"{fewer}a smaller training.checkpoint.every makes more, and keep_last={count} keeps them",
        )
    return [checkpoint.path for checkpoint in checkpoints[-count:]]


def _model_in(path: Path) -> Path:
    run = RunDirectory(path)
    if (path / WEIGHTS).exists() or not (run.checkpoints_folder.is_dir() or run.resolved_config.is_file()):
        return path
    return _best(run, str(path)).path


def _best(run: RunDirectory, name: str) -> Checkpoint:
    best = run.best()
    if best is None:
        raise ModelError(f"{name}: the run has no checkpoint yet", _CONTINUE)
    return best


@cache
def _warn(text: str) -> None:
    """Log a warning once, however often a command asks for its model."""
    logging.getLogger("deepwire").warning(text)


def _checkpoints(run: RunDirectory, name: str) -> list[Checkpoint]:
    if not run.path.is_dir():
        if run.path.exists():
            raise ModelError(f"{name}: {run.path} is a file, not the directory of a run")
        raise ModelError(f"{name}: no such run: {run.path} does not exist")
    checkpoints = run.checkpoints()
    if not checkpoints:
        raise ModelError(f"{name}: the run has no checkpoint yet", _CONTINUE)
    return checkpoints


def _at_update(run: RunDirectory, checkpoints: list[Checkpoint], update: int) -> Path:
    for checkpoint in checkpoints:
        if checkpoint.update == update:
            return checkpoint.path
    there = ", ".join(str(checkpoint.update) for checkpoint in checkpoints)
    raise ModelError(f"{run.path}: no checkpoint at update {update}", f"there are: {there}")


def _up_to_date(target: Path, folders: list[Path]) -> bool:
    try:
        weights = (target / WEIGHTS).stat()
        _check_once(target, weights.st_mtime_ns, weights.st_size)
        return metadata_of(read_config(target)).get("sources") == sources(folders)
    except (FileNotFoundError, NotADirectoryError, ModelError):
        return False


@cache
def _check_once(folder: Path, _changed: int, _size: int) -> None:
    """Check an average once: a command finds its model several times, and its weights may be large."""
    check_manifest(folder, required=(WEIGHTS, CONFIG))
