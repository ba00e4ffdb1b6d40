"""``deepwire study``: systems trained by a plan, tested against each other, on one page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.line_by_line import tell
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deepwire.lab.study.store import StudyStore

Plans = Annotated[
    list[str],
    typer.Argument(
        metavar="PLAN.yaml... [KEY=VALUE]...", help="Plans, and changes of them: seeds=[1], text=FOLDER."
    ),
]
Folder = Annotated[Path, typer.Option(help="Folder for runs and report; the same folder continues.")]
Results = Annotated[Path | None, typer.Option(help="Folder for results as JSON. Default: FOLDER/results.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Train only this system; repeatable.")]
Direction = Annotated[list[str] | None, typer.Option(help="Train only in this direction; repeatable.")]
Jobs = Annotated[
    int,
    typer.Option("--jobs", "-j", min=1, help="Runs at a time; with training.threads=1, as many as cores."),
]
Retry = Annotated[bool, typer.Option("--retry", help="Train failed runs again.")]
ReportOnly = Annotated[bool, typer.Option("--report-only", help="Train nothing; report what is there.")]
Markdown = Annotated[Path | None, typer.Option(help="Also write the report here, with figures as SVG.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the tables at the end.")]


def study(
    plans: Plans,
    folder: Folder = Path("runs/study"),
    results: Results = None,
    only: Only = None,
    direction: Direction = None,
    jobs: Jobs = 1,
    retry: Retry = False,
    report_only: ReportOnly = False,
    markdown: Markdown = None,
    quiet: Quiet = False,
) -> None:
    """Train systems with several seeds by plans, test their differences, and write a report.

    After an interruption, also by kill -9, the same command continues. A run that fails is reported as
    failed, and the others follow. Writes study.md, study.json and, with matplotlib, study.html into the
    folder.

    deepwire study examples/studies/multi30k.yaml --folder runs/results --jobs 2

    deepwire study examples/studies/multi30k.yaml seeds=[1] --only pre-norm --only gtrans
    """
    from deepwire.io.output import check_output
    from deepwire.lab.report import as_text
    from deepwire.lab.study.findings import write_pages
    from deepwire.lab.study.plan import read_plan
    from deepwire.lab.study.store import StudyStore

    paths = [Path(each) for each in plans if "=" not in each]
    overrides = [each for each in plans if "=" in each]
    if not paths:
        raise UsageError("no plan was given", "name a .yaml file: deepwire study PLAN.yaml")
    if len({path.stem for path in paths}) < len(paths):
        raise UsageError("two plans have one name", "their runs would lie in one folder: rename one")
    if markdown is not None:
        check_output(markdown, paths)
    _check_folder(folder)
    read = [read_plan(path, tuple(overrides)) for path in paths]
    _check_names("--only", only or (), [name for plan in read for name in plan.systems])
    _check_names("--direction", direction or (), [name for plan in read for name in plan.directions])
    kept = results or folder / "results"
    stores = [StudyStore(kept / path.stem) for path in paths]
    if not report_only:
        _train(paths, stores, folder, overrides, (only or (), direction or ()), jobs, retry=retry)
    findings, written = write_pages(list(zip(read, stores, strict=True)), folder, markdown, tell)
    if not quiet:
        sys.stdout.write(as_text(findings))
    tell(f"written: {written}")


def _train(
    paths: Sequence[Path],
    stores: Sequence[StudyStore],
    folder: Path,
    overrides: Sequence[str],
    chosen: tuple[Sequence[str], Sequence[str]],
    jobs: int,
    *,
    retry: bool,
) -> None:
    from deepwire.lab.study.plan import Study
    from deepwire.lab.study.processes import Stopped
    from deepwire.lab.study.runner import StudyRunner

    studies = [Study(path, folder, overrides) for path in paths]
    try:
        for one, store in zip(studies, stores, strict=True):
            StudyRunner(one, store, tell, jobs).run(*chosen, retry=retry)
    except Stopped as stopped:
        tell(f"stopped by {stopped.number.name}; the same command goes on from here")
        raise typer.Exit(128 + stopped.number) from None


def _check_names(option: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise UsageError(f"{option}: the plan has no {name!r}", f"it has {', '.join(known)}")


def _check_folder(folder: Path) -> None:
    """Refuse a file, or the directory of a single run, where runs are to be kept."""
    from deepwire.checkpoint.run_directory import RunDirectory, require_folder

    require_folder(folder, "--folder")
    if RunDirectory(folder).resolved_config.exists():
        raise UsageError(f"--folder: {folder} is the directory of a training run", "name another one")
