"""Training from Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from deepwire.api.run import Run
from deepwire.api.settings import RunSettings, load_settings
from deepwire.api.specification import require_startable, training_spec
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.data.prepare import prepared as preparation
from deepwire.distributed.launch import join_process_group
from deepwire.distributed.process_group import ProcessGroup
from deepwire.ops.process import given_back
from deepwire.runfile import CHANGEABLE, LoadedRunFile, completed
from deepwire.training.dry_run import DryRun
from deepwire.training.dry_run import dry_run as make_dry_run
from deepwire.training.run.spec import TrainingSpec
from deepwire.training.run_training import finished, open_session
from deepwire.training.session import Callback, TrainingSession


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
    loaded = load_settings(run, settings)
    with _joined(processes) as group:
        directory, done = RunDirectory(loaded.run_directory), None
        if group.main and not fresh:
            done = finished(directory, loaded.config.training, loaded.resolved, completed, CHANGEABLE)
        told = group.broadcast_value(done)
        if told is not None:
            return Run(directory.path, nothing_to_do=str(told))
        with _session(
            loaded, group, callbacks=callbacks, fresh=fresh, quiet=quiet, handle_signals=handle_signals
        ) as session:
            for _ in session:
                pass
        return Run(directory.path, stop_reason=session.stop_reason)


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

    ::

        with deepwire.training_session("run.yaml") as session:
            for update in session:
                if update.number == 1000:
                    session.learning_rate /= 10

    Leaving the block saves a checkpoint; after an error the last one that was written counts. A later call
    continues the run. Within the block the process has the threads, float32 products, current GPU and random
    numbers that training needs, see `train`.

    Arguments and errors as in `train`.
    """
    loaded = load_settings(run, settings)
    with (
        _joined(None) as group,
        _session(
            loaded, group, callbacks=callbacks, fresh=fresh, quiet=quiet, handle_signals=handle_signals
        ) as session,
    ):
        yield session


def dry_run(run: RunSettings, /, *, processes: ProcessGroup | None = None, **settings: object) -> DryRun:
    """Make a few updates as training would, outside of any run directory, and say what they tell.

    Arguments and errors as in `train`.
    """
    loaded = load_settings(run, settings)
    with _joined(processes) as group, given_back():
        require_startable(loaded, group, begins=True)
        return make_dry_run(_specification(loaded, group, quiet=not group.main), processes=group)


@contextmanager
def _joined(processes: ProcessGroup | None) -> Iterator[ProcessGroup]:
    if processes is not None:
        yield processes
        return
    with join_process_group() as group:
        yield group


@contextmanager
def _session(
    loaded: LoadedRunFile,
    processes: ProcessGroup,
    *,
    callbacks: Sequence[Callback],
    fresh: bool,
    quiet: bool,
    handle_signals: bool,
) -> Iterator[TrainingSession]:
    quiet = quiet or not processes.main
    with given_back():
        begins = fresh or not RunDirectory(loaded.run_directory).checkpoints()
        require_startable(loaded, processes, begins=begins)
        spec = _specification(loaded, processes, quiet=quiet)
        with open_session(
            spec,
            processes=processes,
            fresh=fresh,
            quiet=quiet,
            handle_signals=handle_signals,
            callbacks=callbacks,
        ) as session:
            yield session


def _specification(loaded: LoadedRunFile, processes: ProcessGroup, *, quiet: bool) -> TrainingSpec:
    config = loaded.config
    progress = None if quiet else _each_step_once()
    return processes.run_on_main_first(
        lambda: training_spec(loaded, preparation.prepare(config.data, seed=config.seed, progress=progress))
    )


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
