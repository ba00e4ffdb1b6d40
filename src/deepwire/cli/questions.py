"""``deepwire questions``: long runs that decide questions about systems, and the page of answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.experiment_options import (
    Jobs,
    Overrides,
    Retry,
    can_plot,
    check_folder,
    check_names,
    stopped_by,
)
from deepwire.cli.line_by_line import tell

if TYPE_CHECKING:
    from collections.abc import Sequence


PlanFile = Annotated[Path, typer.Argument(metavar="PLAN.yaml", help="Questions, parts and queue.")]
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
    from deepwire.io.output import check_output
    from deepwire.lab.experiments.questions.question_pages import write_answers
    from deepwire.lab.experiments.questions.question_plan import read_questions

    kept, page = results or folder / "answers", markdown or folder / "answers.md"
    if markdown is not None:
        check_output(markdown, [plan])
    check_folder(folder)
    known = read_questions(plan, tuple(overrides or ()))
    check_names("--only", only or (), known.questions)
    plots = can_plot("page", required=report_only)
    if not report_only:
        _train(plan, overrides or (), folder, kept, only or (), jobs, retry=retry)
    if plots:
        write_answers(known, kept, page)
        tell(f"written: {page}")


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
    from deepwire.lab.experiments.questions.question_runner import QuestionRunner
    from deepwire.lab.experiments.questions.question_runs import load_questions
    from deepwire.lab.experiments.results.run_processes import Stopped

    runner = QuestionRunner(load_questions(plan, folder, overrides, tell), folder, kept, tell, jobs)
    try:
        runner.run_queue(only, retry=retry)
    except Stopped as stopped:
        raise stopped_by(stopped) from None
