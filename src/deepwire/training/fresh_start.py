"""A run that begins anew: what was there is moved aside, and comes back where the new run never trains."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deepwire.checkpoint.run_directory import LOCK, RunDirectory
from deepwire.errors import UsageError
from deepwire.io.atomic import move_aside, remove_folder
from deepwire.training.recorder import Attempt


def move_run_aside(run: RunDirectory) -> Path | None:
    """Rename a run that is there to ``RUN.1``, ``RUN.2`` and so on; its new name, or None without one.

    Raises:
        UsageError: The folder holds something else or the working directory, or another process trains there.
    """
    if not run.path.is_dir() or not any(run.path.iterdir()):
        return None
    traces = run.resolved_config, run.environment, run.metrics, run.checkpoints_folder, run.path / LOCK
    if not any(trace.exists() for trace in traces):
        raise UsageError(
            f"{run.path}: is no run, and --fresh moves only runs aside", "name another folder with run=FOLDER"
        )
    here = Path.cwd()
    if run.path.resolve() in (here, *here.parents):
        raise UsageError(
            f"{run.path}: --fresh cannot move the working directory aside", "start it in another directory"
        )
    with run.locked():
        return move_aside(run.path)


@contextmanager
def hold_run(run: RunDirectory, *, fresh: bool) -> Iterator[tuple[Attempt, Path | None]]:
    """Hold a run directory for this process; where the run fails before it trains, leave all as it was.

    So the next try begins without traces of this one. Also gives where a run was moved that was there before.

    Args:
        run: Its folder is made where there is none.
        fresh: Whether a run that is there is moved aside.

    Raises:
        UsageError: Another process trains there, or what is there cannot be moved.
        ResourceError: The folder cannot be made or written.
    """
    aside = move_run_aside(run) if fresh else None
    before = frozenset(run.path.iterdir()) if run.path.is_dir() else None
    with run.locked():
        attempt = Attempt()
        try:
            yield attempt, aside
        except BaseException:
            if not attempt.training and not run.checkpoints():
                with suppress(OSError):
                    _take_back(run.path, before, aside)
            raise


def _take_back(folder: Path, before: Collection[Path] | None, aside: Path | None) -> None:
    """Remove what was not in a folder before, and the folder itself where there was none."""
    for path in set(folder.iterdir()).difference(before or ()):
        if path.is_dir():
            remove_folder(path)
        else:
            path.unlink()
    if before is None:
        folder.rmdir()
    if aside is not None:
        aside.rename(folder)
