"""Training from Python, and the run directory that it makes: its model, its history, its best checkpoint."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from deepwire.api.prepare import RunSettings, load_settings
from deepwire.api.specification import require_startable, training_spec
from deepwire.checkpoint.run_directory import Checkpoint, RunDirectory
from deepwire.data.prepare import prepared as preparation
from deepwire.data.text.corpus import hinting_at_recipes
from deepwire.distributed.launch import join_process_group
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import ModelError, UsageError
from deepwire.io.regular_files import read_json
from deepwire.ops.process import restore_torch_settings
from deepwire.runfile import CHANGEABLE, LoadedRunFile, completed
from deepwire.training.dry_run import DryRun
from deepwire.training.dry_run import dry_run as make_dry_run
from deepwire.training.log import read_records
from deepwire.training.session import Callback, TrainingSession, nothing_to_do_reason, open_session
from deepwire.training.spec import TrainingSpec, read_run_file, require_same_settings, require_same_text
from deepwire.training.state import StopReason

if TYPE_CHECKING:
    from deepwire.api.model import Model


class Run:
    """A run directory. It can stand for its path: ``deepwire.load(run)`` loads its best model.

    Args:
        path: The run directory.
        stop_reason: Why its training ended just now; default: what the directory says.
        nothing_to_do: What to tell a user where the run was complete before.

    Attributes:
        path: The run directory.
        nothing_to_do: Why nothing was trained; None where something was.

    Raises:
        UsageError: There is no such run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        stop_reason: StopReason | None = None,
        nothing_to_do: str | None = None,
    ) -> None:
        self.path = Path(path)
        self.nothing_to_do = nothing_to_do
        self._directory = RunDirectory(self.path)
        self._stop_reason = stop_reason
        # After training, perhaps only another process sees it.
        opened = stop_reason is None and nothing_to_do is None
        if opened and not self._directory.resolved_config.exists():
            raise UsageError(f"{self.path}: no such run", "give the run directory of a training")

    def __fspath__(self) -> str:
        """The run directory."""
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def model(self) -> Model:
        """The model of the best checkpoint, for translation, on a GPU if there is one; loaded once.

        Raises:
            ModelError: There is no checkpoint, or it is damaged.
        """
        from deepwire.api.model import load

        return load(self.path)

    @property
    def history(self) -> list[dict[str, object]]:
        """All records of ``metrics.jsonl`` in order, validations with ``kind`` ``valid``, others ``train``.

        Raises:
            DataError: The file is damaged.
        """
        return [dict(record) for record in read_records(self._directory.metrics)]

    @property
    def best(self) -> Checkpoint | None:
        """The best checkpoint: ``path``, ``update``, ``scores``; the newest where nothing was scored."""
        return self._directory.best()

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints that are kept, the oldest first."""
        return self._directory.checkpoints()

    @property
    def settings(self) -> dict[str, object]:
        """All settings of the run, defaults included.

        Raises:
            ModelError: The file is damaged.
        """
        return read_json(self._directory.resolved_config)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why its training ended; None where that is not known: it goes on, or was interrupted before.

        Nor is it known where the file that says it is damaged.
        """
        if self._stop_reason is None and self._directory.done.exists():
            with suppress(ModelError):
                return StopReason(str(read_json(self._directory.done).get("reason")), finished=True)
        return self._stop_reason


def train(
    run: RunSettings,
    /,
    *,
    callbacks: Sequence[Callback] = (),
    fresh: bool = False,
    quiet: bool = False,
    handle_signals: bool = False,
    processes: ProcessGroup | None = None,
    **settings: object,
) -> Run:
    """Train a model; text is prepared first where needed, and an interrupted run is continued.

    It is this process that trains, together with others only where torchrun started them; the command makes
    others itself (``training.processes``). While it trains, the process has the threads, float32 products,
    current GPU and random numbers that training needs; all are given back afterwards. Everything else that
    the command sets for speed is in `deepwire.configure_process`.

    Args:
        run: Run file, recipe, or a mapping with what a run file holds.
        callbacks: Called in this order, after updates and validations.
        fresh: Begin anew; a run that is there is moved aside to ``RUN.1``.
        quiet: Show nothing; ``log.txt`` in the run directory has it all.
        handle_signals: Let Ctrl-C and SIGTERM save and stop, and SIGUSR1 save. Default: they are Python's
            own, and Ctrl-C ends training where it is; its last checkpoint is kept.
        processes: Those that train together; default: those that torchrun started, or this one alone.
        settings: Sections that override those of `run`: ``training={"max_updates": 100}``.

    Raises:
        UsageError: A setting is wrong, or not that of the run that is there.
        DataError: The text cannot be read or used.
        ModelError: A checkpoint, or the model to begin with, is damaged.
        DivergedError: The loss stays not finite.
        ResourceError: Disk or memory do not suffice.
    """
    callbacks, loaded = tuple(callbacks), load_settings(run, settings, trusted=True)
    with _joined(processes) as group:
        directory, changes, done = RunDirectory(loaded.run_directory), list[str](), None
        if group.main and not fresh:
            changes = _changes(directory, loaded)
            done = nothing_to_do_reason(directory, loaded.config.training)
            if done and (text := preparation.preparation_digest(loaded.config.data)) is not None:
                require_same_text(directory, text)
        told = group.broadcast_value(done)
        if told is not None:
            return Run(directory.path, nothing_to_do=str(told))
        options = {"fresh": fresh, "quiet": quiet, "handle_signals": handle_signals}
        with _session(loaded, group, changes, callbacks=callbacks, **options) as session:
            for _ in session:
                pass
        return Run(directory.path, stop_reason=session.stop_reason)


def _changes(run: RunDirectory, loaded: LoadedRunFile) -> list[str]:
    """The settings that a run goes on with otherwise than before, one line each."""
    if not run.checkpoints():
        return []
    before, now = completed(read_run_file(run.resolved_config)), completed(loaded.resolved)
    return require_same_settings(run.path, before, now, CHANGEABLE)


@contextmanager
def training_session(
    run: RunSettings,
    /,
    *,
    callbacks: Sequence[Callback] = (),
    fresh: bool = False,
    quiet: bool = False,
    handle_signals: bool = False,
    **settings: object,
) -> Iterator[TrainingSession]:
    """Train step by step: iterating over the session makes updates.

        with deepwire.training_session("run.yaml") as session:
            for update in session:
                if update.number == 1000:
                    session.learning_rate /= 10

    Leaving the block saves a checkpoint; after an error the last one that was written counts. A later call
    continues the run. Within the block the process has the threads, float32 products, current GPU and random
    numbers that training needs, see `train`.

    Arguments and errors as in `train`.
    """

    called, loaded = tuple(callbacks), load_settings(run, settings, trusted=True)
    options = {"fresh": fresh, "quiet": quiet, "handle_signals": handle_signals}
    with _joined(None) as group:
        there = group.main and not fresh
        changes = _changes(RunDirectory(loaded.run_directory), loaded) if there else []
        with _session(loaded, group, changes, callbacks=called, **options) as session:
            yield session


def dry_run(run: RunSettings, /, *, processes: ProcessGroup | None = None, **settings: object) -> DryRun:
    """Make a few updates as training would, outside of any run directory, and say what they tell.

    Arguments and errors as in `train`.
    """
    loaded = load_settings(run, settings)
    with _joined(processes) as group, restore_torch_settings():
        require_startable(loaded, group, begins=True)
        return make_dry_run(_specification(loaded, group, (), quiet=not group.main), processes=group)


def _joined(processes: ProcessGroup | None) -> AbstractContextManager[ProcessGroup]:
    return join_process_group() if processes is None else nullcontext(processes)


@contextmanager
def _session(
    loaded: LoadedRunFile,
    processes: ProcessGroup,
    changes: Sequence[str],
    *,
    callbacks: Sequence[Callback],
    fresh: bool,
    quiet: bool,
    handle_signals: bool,
) -> Iterator[TrainingSession]:
    quiet = quiet or not processes.main
    with restore_torch_settings():
        # As the main process sees it: the others need not see the folder, and must take the same steps.
        begins = processes.main and (fresh or not RunDirectory(loaded.run_directory).checkpoints())
        require_startable(loaded, processes, begins=bool(processes.broadcast_value(begins)))
        spec = _specification(loaded, processes, changes, quiet=quiet)
        with open_session(
            spec,
            processes=processes,
            fresh=fresh,
            quiet=quiet,
            handle_signals=handle_signals,
            callbacks=callbacks,
        ) as session:
            yield session


def _specification(
    loaded: LoadedRunFile, processes: ProcessGroup, changes: Sequence[str], *, quiet: bool
) -> TrainingSpec:
    config = loaded.config
    progress = None if quiet else _each_step_once()

    def specified() -> TrainingSpec:
        with hinting_at_recipes(loaded.origins):
            prepared = preparation.prepare(config.data, seed=config.seed, progress=progress)
            return training_spec(loaded, prepared, changes)

    return processes.run_on_main_first(specified)


def _each_step_once() -> Callable[[str, int, int | None], None]:
    """Shows one line on stderr for each step of preparation."""
    shown = ""

    def show(step: str, _done: int, _total: int | None) -> None:
        nonlocal shown
        if step != shown:
            with suppress(OSError):  # nobody may be there to read it, and the work goes on
                print(step, file=sys.stderr, flush=True)
            shown = step

    return show
