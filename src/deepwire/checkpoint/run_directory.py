"""The folder of one training run: its files, its checkpoints, and which of them are the best.

::

    RUN/config.yaml, config.resolved.json, env.json    what was asked for, and where it ran
    RUN/start_from.json                                 what was taken over from another model
    RUN/metrics.jsonl, log.txt, valid/update-002000.txt
    RUN/gradients.jsonl, depth_weights.jsonl           by layer, where training.record asks for them
    RUN/checkpoints/update-002000/                      a model directory + optimizer.safetensors + state.json
    RUN/checkpoints/index.json                          best, last and the scores of each
    RUN/averages/avg5/                                  averaged models, made when asked for
    RUN/DONE                                            why training ended
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deepwire.checkpoint.model_files import DamagedError, check_file, check_manifest, write_manifest
from deepwire.checkpoint.store import CONFIG, OPTIMIZER, STATE, WEIGHTS
from deepwire.errors import LogFn, ModelError, UsageError
from deepwire.io.atomic import disk_errors, move_aside, new_folder, recover, remove_folder, write_json
from deepwire.io.regular_files import acquire_lock, cannot_read, read_json

HIGHER_IS_BETTER = frozenset({"bleu", "chrf", "chrf++"})


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk.

    Attributes:
        update: Updates that it had made.
        path: Its folder.
        scores: Validation scores by metric (``loss``, ``perplexity``, ``bleu``, ...); empty without any.
        unknown: Why nobody knows its scores; empty where they are known.
        interim: Whether it was written only because training was stopped; a run without that stop lacks it.
    """

    update: int
    path: Path
    scores: dict[str, float] = field(default_factory=dict)
    unknown: str = ""
    interim: bool = False


def better(metric: str, score: float, than: float) -> bool:
    """Whether ``score`` beats ``than``; equal scores do not."""
    return score > than if metric in HIGHER_IS_BETTER else score < than


def ranked(checkpoints: Sequence[Checkpoint], metric: str) -> list[Checkpoint]:
    """The checkpoints that have a finite score, the best first; of equal ones the older first."""
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    scored = [
        checkpoint for checkpoint in checkpoints if math.isfinite(checkpoint.scores.get(metric, math.nan))
    ]
    return sorted(scored, key=lambda checkpoint: (sign * checkpoint.scores[metric], checkpoint.update))


def best(checkpoints: Sequence[Checkpoint], metric: str) -> Checkpoint | None:
    """The best checkpoint; where none has a score, the newest; None where there is none at all."""
    order = ranked(checkpoints, metric)
    return order[0] if order else max(checkpoints, key=lambda checkpoint: checkpoint.update, default=None)


def among_best(checkpoints: Sequence[Checkpoint], metric: str, score: float | None, keep: int) -> bool:
    """Whether a new checkpoint with ``score`` would be checkpoint of the ``keep`` best."""
    if score is None or not math.isfinite(score):
        return False
    order = ranked(checkpoints, metric)
    return len(order) < keep or better(metric, score, order[keep - 1].scores[metric])


def checkpoints_to_delete(
    checkpoints: Sequence[Checkpoint],
    metric: str,
    *,
    keep_last: int,
    keep_best: int,
) -> list[Checkpoint]:
    """The checkpoints that are neither among the newest ``keep_last`` nor among the best ``keep_best``.

    One whose scores are unknown may be the best, and is kept. An interim one stays until there is a newer one
    and does not count among the newest, so an interrupted run keeps what another one keeps.
    """
    in_order = sorted(checkpoints, key=lambda checkpoint: checkpoint.update)
    newest = [*regular(in_order)[-keep_last:], *in_order[-1:]]
    kept = {checkpoint.update for checkpoint in (*newest, *ranked(checkpoints, metric)[:keep_best])}
    return [
        checkpoint for checkpoint in checkpoints if checkpoint.update not in kept and not checkpoint.unknown
    ]


def regular(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The checkpoints that an uninterrupted run has as well."""
    return [checkpoint for checkpoint in checkpoints if not checkpoint.interim]


def require_folder(folder: Path, name: str) -> None:
    """Check that a folder is there, or can be made; errors call the setting `name`.

    Raises:
        UsageError: A file is in its place.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"{name}: {there} is a file, not a folder", "name another one")


LOCK = "lock"
_NAME = re.compile(r"update-(\d{6,})")


class RunDirectory:
    """Paths and checkpoints of a run.

    Args:
        path: The run directory; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.user_config = path / "config.yaml"
        self.resolved_config = path / "config.resolved.json"
        self.environment = path / "env.json"
        self.start_from = path / "start_from.json"
        self.metrics = path / "metrics.jsonl"
        self.log = path / "log.txt"
        self.translations = path / "valid"
        self.tensorboard = path / "tensorboard"
        self.bad_batch = path / "bad_batch.jsonl"
        self.gradients = path / "gradients.jsonl"
        self.depth_weights = path / "depth_weights.jsonl"
        self.averages = path / "averages"
        self.done = path / "DONE"
        self.checkpoints_folder = path / "checkpoints"
        self.index = self.checkpoints_folder / "index.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run directory (made when missing) for this process: one trainer at a time.

        Raises:
            UsageError: If another process holds it; names its pid and host. Or if the lock is a link.
            ResourceError: If the folder cannot be made or written.
        """
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = acquire_lock(self.path / LOCK, self._refuse_second_trainer)
        with lock:
            yield

    def _refuse_second_trainer(self, holder: str) -> None:
        raise UsageError(
            f"{self.path}: run directory is in use by {holder}",
            "wait for it, stop it, or train in another directory with run=DIR",
        )

    def require_config_kept(self, text: str) -> None:
        """Check that a run file with this text would not replace another one in a folder that is no run.

        Raises:
            UsageError: It would.
        """
        if not text or self.resolved_config.exists() or not self.user_config.exists():
            return
        if self.user_config.read_bytes() != text.encode():
            where = f"{self.user_config}: is there already, and {self.path} is no run"
            raise UsageError(where, "name another folder with run=FOLDER")

    def checkpoint_path(self, update: int) -> Path:
        """Folder of the checkpoint after ``update`` updates."""
        return self.checkpoints_folder / f"update-{update:06d}"

    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints, the oldest first; of one whose state is damaged the scores are unknown.

        Raises:
            UnreadableError: If the folder of checkpoints cannot be read.
        """
        checkpoints = []
        for path in _folders(self.checkpoints_folder):
            if not (match := _NAME.fullmatch(path.name)):
                continue
            update = int(match[1])
            try:
                checkpoints.append(_checkpoint(update, path))
            except ModelError as error:
                if path not in _folders(self.checkpoints_folder):  # it has just been deleted, or moved aside
                    continue
                checkpoints.append(Checkpoint(update, path, unknown=error.message))
        return sorted(checkpoints, key=lambda checkpoint: checkpoint.update)

    def best(self) -> Checkpoint | None:
        """The best checkpoint by the metric of the run; the newest where nothing was scored, or None.

        Raises:
            ModelError: If it cannot be told, because files are damaged that say it.
        """
        checkpoints = self.checkpoints()
        if len(checkpoints) < 2:
            return checkpoints[0] if checkpoints else None
        for checkpoint in checkpoints:
            if checkpoint.unknown:
                raise ModelError(
                    f"{self.path}: which checkpoint is the best cannot be told, because the scores of "
                    f"{checkpoint.path.name} are unknown: {checkpoint.unknown}",
                    self._name_one,
                )
        if not any(checkpoint.scores for checkpoint in checkpoints):
            return checkpoints[-1]
        return best(checkpoints, self.metric())

    def metric(self) -> str:
        """The metric that the best checkpoint is chosen by.

        Raises:
            ModelError: If neither the settings of the run nor the index say it.
        """
        settings = _entry(self.resolved_config, "training", "validation", "metric")
        for metric in (settings, _entry(self.index, "metric")):
            if isinstance(metric, str):
                return metric
        raise ModelError(
            f"{self.path}: which checkpoint is the best cannot be told: neither "
            f"{self.resolved_config.name} nor {self.index.relative_to(self.path)} says by what metric",
            self._name_one,
        )

    @property
    def _name_one(self) -> str:
        return f"name a checkpoint: {self.path}@last or {self.path}@update-N"

    def save(
        self,
        update: int,
        write: Callable[[Path], None],
        *,
        metric: str,
        keep_last: int,
        keep_best: int,
    ) -> Path:
        """Write the checkpoint after ``update``, then delete those that are no longer kept.

        Args:
            update: Updates made so far.
            write: Fills the given folder with everything but the manifest.
            metric: What makes a checkpoint the best.
            keep_last: Newest checkpoints to keep.
            keep_best: Best checkpoints to keep.

        Raises:
            ResourceError: If the disk is full; earlier checkpoints are intact.
        """
        target = self.checkpoint_path(update)
        self.checkpoints_folder.mkdir(parents=True, exist_ok=True)
        with new_folder(target) as temporary:
            write(temporary)
            write_manifest(temporary)
        checkpoints = self.checkpoints()
        leaving = checkpoints_to_delete(checkpoints, metric, keep_last=keep_last, keep_best=keep_best)
        self._write_index([checkpoint for checkpoint in checkpoints if checkpoint not in leaving], metric)
        for checkpoint in leaving:
            remove_folder(checkpoint.path)
        return target

    def newest_sound(self, report: LogFn, check: Callable[[Path], object] | None = None) -> Checkpoint | None:
        """The newest undamaged checkpoint; damaged newer ones are reported and renamed ``update-N.damaged``.

        Args:
            report: Receives a line for each damaged checkpoint.
            check: Raises `DamagedError` for a checkpoint whose files are whole but make no sense.

        Raises:
            ModelError: If there are checkpoints and all are damaged.
            UnreadableError: If the newest that may be sound cannot be read; nothing is renamed.
        """
        _folders(self.checkpoints_folder)  # an error where it may not be read
        if self.checkpoints_folder.is_dir():
            recover(self.checkpoints_folder)
        damaged: list[DamagedError] = []
        for checkpoint in reversed(self.checkpoints()):
            try:
                check_manifest(checkpoint.path, required=(WEIGHTS, CONFIG, OPTIMIZER, STATE))
                if check is not None:
                    check(checkpoint.path)
            except DamagedError as error:
                damaged.append(error)
                continue
            for damage in damaged:
                report(
                    f"checkpoint {damage.folder} is damaged ({damage.reason}); using {checkpoint.path.name}"
                )
                move_aside(damage.folder, "damaged")
            return checkpoint
        if damaged:
            raise ModelError(
                f"{self.checkpoints_folder}: every checkpoint is damaged; "
                f"{damaged[0].folder.name}: {damaged[0].reason}",
                "start over with --fresh, which moves this run aside",
            )
        return None

    def _write_index(self, checkpoints: list[Checkpoint], metric: str) -> None:
        first = next(iter(ranked(checkpoints, metric)), None)
        record = {
            "metric": metric,
            "best": first.path.name if first else None,
            "last": checkpoints[-1].path.name if checkpoints else None,
            "checkpoints": {known.path.name: known.scores for known in checkpoints if not known.unknown},
        }
        write_json(self.index, record)


def _folders(parent: Path) -> list[Path]:
    """The folders in ``parent``; none where it does not exist."""
    try:
        with os.scandir(parent) as entries:
            return [parent / entry.name for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise cannot_read(parent, error) from error


def _checkpoint(update: int, folder: Path) -> Checkpoint:
    check_file(folder, STATE)
    state = read_json(folder / STATE)
    scores = state.get("scores")
    found = scores.items() if isinstance(scores, dict) else ()
    numbers = {str(name): float(score) for name, score in found if isinstance(score, int | float)}
    return Checkpoint(update, folder, numbers, interim=state.get("interim") is True)


def _entry(path: Path, *keys: str) -> object:
    """The value of a JSON file under nested keys; None where there is none or the file cannot be read."""
    try:
        value: object = read_json(path)
    except ModelError:
        return None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
