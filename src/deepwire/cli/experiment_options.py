"""Options and messages that the commands share which run a plan of experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.line_by_line import tell

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from deepwire.lab.experiments.results.run_processes import Stopped

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the plan, such as seeds=[1] or text=FOLDER."),
]
Retry = Annotated[bool, typer.Option("--retry", help="Try runs that failed before once more.")]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        help="Train so many runs at a time: as many as there are cores, where each has one thread "
        "(training.threads: 1). What is measured meanwhile is slower.",
    ),
]


def check_names(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    """See that an option names what the plan has.

    Raises:
        UsageError: It does not.
    """
    from deepwire.errors import UsageError

    names = list(known)
    for name in given:
        if name not in names:
            raise UsageError(f"{option}: the plan has no {name!r}", f"it has {', '.join(names)}")


def check_folder(folder: Path) -> None:
    """See that a folder can be made where runs are to be kept.

    Raises:
        UsageError: A file is there, or a single run.
    """
    from deepwire.checkpoint.run_directory import RunDirectory, require_folder
    from deepwire.errors import UsageError

    require_folder(folder, "--folder")
    if RunDirectory(folder).resolved_config.exists():
        raise UsageError(f"--folder: {folder} is the directory of a training run", "name another one")


def can_plot(lacking: str, *, required: bool = False) -> bool:
    """Whether matplotlib is there.

    Args:
        lacking: What there is none of without it; it is said.
        required: Whether nothing else was asked for.

    Raises:
        UsageError: It is required and not there.
    """
    from deepwire.errors import UsageError
    from deepwire.lab.report.plots import require_matplotlib

    try:
        require_matplotlib()
    except UsageError as error:
        if required:
            raise
        tell(f"no {lacking}: {error}")
        return False
    return True


def stopped_by(stopped: Stopped) -> typer.Exit:
    """Say that a signal stopped the runs, and that they go on; the exit that it calls for."""
    tell(f"stopped by {stopped.number.name}; the same command goes on from here")
    return typer.Exit(128 + stopped.number)
