"""``deepwire questions``: long runs that decide questions about systems, and the page of answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepwire.experiments.questions.question_plan import QuestionsPlan

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN.yaml", help="Questions, parts and queue.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the plan, such as text=FOLDER."),
]
Folder = Annotated[Path, typer.Option(help="Where runs are kept; the same folder goes on.")]
Results = Annotated[
    Path | None,
    typer.Option(help="Where the small results are kept, which pages are made of. Default: FOLDER/answers."),
]
Only = Annotated[list[str] | None, typer.Option("--only", help="Only this question; repeatable.")]
ReportOnly = Annotated[
    bool, typer.Option("--report-only", help="Train nothing; write the page of what is kept. Needs no text.")
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        help="Write the page there, with pictures in a folder beside it. Default: FOLDER/answers.md."
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Try runs that failed before once more.")]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        help="Train so many runs at a time: as many as there are cores, one thread each.",
    ),
]


def questions(
    plan: PlanFile,
    overrides: Overrides = None,
    folder: Folder = Path("runs/questions"),
    results: Results = None,
    only: Only = None,
    jobs: Jobs = 1,
    retry: Retry = False,
    report_only: ReportOnly = False,
    markdown: Markdown = None,
) -> None:
    """Train systems to the same update and on to their plateaus, and answer questions about them.

    Whatever is done is kept in the folders: after an interruption, also by kill -9, the same command goes on.

    deepwire questions examples/questions/questions.yaml text=DATA --only Q1 --jobs 2

    deepwire questions examples/questions/questions.yaml --results benchmarks/results/questions --report-only
    """
    from deepwire.experiments.questions.question_pages import write_answers
    from deepwire.experiments.questions.question_plan import read_questions
    from deepwire.io.output import check_output

    kept, page = results or folder / "answers", markdown or folder / "answers.md"
    if markdown is not None:
        check_output(markdown)
    known = read_questions(plan, tuple(overrides or ()))
    _check_names(only or (), known)
    can_plot = _can_plot(report_only=report_only)
    if not report_only:
        _train(plan, overrides or (), folder, kept, only or (), jobs, retry=retry)
    if can_plot:
        write_answers(known, kept, page)
        _tell(f"written: {page}")


def _train(
    plan: Path,
    overrides: Sequence[str],
    folder: Path,
    kept: Path,
    only: Sequence[str],
    jobs: int,
    *,
    retry: bool,
) -> None:
    from deepwire.experiments.questions.question_runner import QuestionRunner
    from deepwire.experiments.questions.question_runs import load_questions
    from deepwire.experiments.results.run_processes import Stopped

    runner = QuestionRunner(load_questions(plan, folder, overrides, _tell), folder, kept, _tell, jobs)
    try:
        runner.run_queue(only, retry=retry)
    except Stopped as stopped:
        _tell(f"stopped by {stopped.number.name}; the same command goes on from here")
        raise typer.Exit(128 + stopped.number) from None


def _check_names(only: Sequence[str], plan: QuestionsPlan) -> None:
    from deepwire.errors import UsageError

    for name in only:
        if name not in plan.questions:
            raise UsageError(
                f"--only: the plan has no question {name!r}", f"it has {', '.join(plan.questions)}"
            )


def _can_plot(*, report_only: bool) -> bool:
    """Whether there is matplotlib, without which there is no page; who wants only the page is told so."""
    from deepwire.analysis.report.plots import require_matplotlib
    from deepwire.errors import UsageError

    try:
        require_matplotlib()
    except UsageError as error:
        if report_only:
            raise
        _tell(f"no page: {error}")
        return False
    return True


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
