"""``deepwire train``: from a run file to a trained model."""

from __future__ import annotations

import errno
import shlex
import sys
from contextlib import ExitStack, closing
from functools import cache
from typing import TYPE_CHECKING, Annotated, cast

import typer

from deepwire.cli.line_by_line import silence_stdout
from deepwire.cli.options import Overrides, RunFileName
from deepwire.command_line import again

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deepwire.api.training import Run
    from deepwire.data.data_config import DataConfig
    from deepwire.distributed.process_group import ProcessGroup
    from deepwire.runfile import LoadedRunFile
    from deepwire.training.session import Callback

Fresh = Annotated[bool, typer.Option("--fresh", help="Start anew; an existing run is renamed RUN.1.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors; RUN/log.txt has the rest.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Make a few updates; report memory, tokens/s, padding, time.")
]
LogCommandOption = Annotated[
    str | None,
    typer.Option(
        "--log-command", metavar="COMMAND", help="Program that reads each log record on stdin, as JSON."
    ),
]


def train(
    run_file: RunFileName,
    overrides: Overrides = None,
    fresh: Fresh = False,
    dry_run: DryRunOption = False,
    quiet: Quiet = False,
    log_command: LogCommandOption = None,
) -> None:
    """Train a model: prepare the text if needed, and continue the run if it was interrupted.

    Examples: deepwire train run.yaml; deepwire train run.yaml training.max_updates=40k model.d_model=512;
    deepwire train run.yaml --dry-run; torchrun --nproc-per-node 4 -m deepwire train run.yaml
    """

    def read() -> LoadedRunFile:
        from deepwire.runfile import load_run_file

        return load_run_file(run_file, overrides or (), trusted=not dry_run)

    run_training(read, fresh=fresh, dry_run=dry_run, quiet=quiet, log_command=log_command)


def run_training(
    read: Callable[[], LoadedRunFile],
    *,
    fresh: bool,
    dry_run: bool,
    quiet: bool,
    log_command: str | None = None,
    callbacks: Callable[[LoadedRunFile], Sequence[Callback]] = lambda _: (),
) -> LoadedRunFile | None:
    """Train as `train` does; gives the run file back in the main process, where `read` reads it, once.

    `callbacks` makes those of each process; a dry run has none, and gives nothing back.
    """
    from deepwire.ops.process import configure_process, quick_start

    with quick_start():
        from deepwire.api.specification import processes_of
        from deepwire.api.training import dry_run as make_dry_run
        from deepwire.distributed.launch import join_process_group

    read = cache(read)
    with join_process_group(lambda: processes_of(read().config)) as processes:
        configure_process()
        loaded = _read_by_main(read, processes)
        if dry_run:
            report = make_dry_run(loaded, processes=processes)
            if processes.main:
                print("\n".join(report.lines()))
            return None
        called = callbacks(loaded)
        run = _train(loaded, processes, called, fresh=fresh, quiet=quiet, log_command=log_command)
    if run.stop_reason is not None and run.stop_reason.exit_code:
        raise typer.Exit(run.stop_reason.exit_code)
    return loaded if processes.main else None


def _read_by_main(read: Callable[[], LoadedRunFile], processes: ProcessGroup) -> LoadedRunFile:
    """The run file as the main process read it, once: others might find it changed, or not at all."""
    from deepwire.runfile import LoadedRunFile

    loaded = processes.run_on_main_first(lambda: read() if processes.main else None)
    told = processes.broadcast_value(None if loaded is None else loaded.to_json())
    return LoadedRunFile.from_json(cast("dict[str, object]", told)) if loaded is None else loaded


def _train(
    loaded: LoadedRunFile,
    processes: ProcessGroup,
    callbacks: Sequence[Callback],
    *,
    fresh: bool,
    quiet: bool,
    log_command: str | None,
) -> Run:
    """Train, and say what to do next."""
    from deepwire.api.training import train
    from deepwire.training.log_command import LogCommand

    with ExitStack() as stack:
        # The process that records is the one that tells others.
        listening = log_command is not None and processes.main
        if listening:
            callbacks = [*callbacks, stack.enter_context(closing(LogCommand(str(log_command))))]
        run = train(
            loaded, callbacks=callbacks, fresh=fresh, quiet=quiet, handle_signals=True, processes=processes
        )
    if not processes.main:
        return run
    if run.nothing_to_do is not None:
        print(run.nothing_to_do)
        print(f"to train longer, raise the limit; to begin anew: {again('--fresh')}")
    elif not quiet:
        try:
            _summarise(loaded, run, processes)
            sys.stdout.flush()
        except OSError as error:
            ended_by_signal = run.stop_reason is not None and run.stop_reason.exit_code
            if error.errno != errno.EIO and not ended_by_signal:
                raise
            silence_stdout()  # the terminal is gone, and that may be why a signal ended the run
    return run


def _summarise(loaded: LoadedRunFile, run: Run, processes: ProcessGroup) -> None:
    best, stop_reason = run.best, run.stop_reason
    if best is not None and loaded.config.training.validation.metric in best.scores:
        scores = ", ".join(f"{name} {score:.4g}" for name, score in best.scores.items())
        print(f"best checkpoint: {best.path} ({scores})")
    elif best is not None:
        print(f"newest checkpoint: {best.path} (not validated, so none is called the best)")
    if stop_reason is None or stop_reason.finished:
        directory = shlex.quote(str(loaded.run_directory))
        print(f"next: deepwire {_next_command(directory, loaded.config.data)}")
    else:
        on = again(without=["--fresh"])  # it would begin anew once more
        print(f"stopped by {stop_reason.reason} and saved; go on from here: {on}")
        if processes.after_stop:
            print(processes.after_stop)


def _next_command(directory: str, data: DataConfig) -> str:
    """A command to try with the model: a text in the source language of the run, or a prompt."""
    if data.text is not None:
        return f"generate {directory} --sample -i PROMPTS"
    if data.languages is None:
        return f"translate {directory} -i TEXT.{data.source}"
    source, target = data.languages.directions[0]
    return f"translate {directory} --to {target} -i TEXT.{source}"
