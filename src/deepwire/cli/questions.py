"""``deepwire questions``: long runs that decide questions about systems, and the page of answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

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
) -> None:
    """Train systems to the same update and on to their plateaus, and answer questions about them.

    Whatever is done is kept in the folders: after an interruption, also by kill -9, the same command goes on.

    deepwire questions examples/questions/questions.yaml text=DATA --only Q1 --jobs 2
    """
    from deepwire.errors import UsageError
    from deepwire.experiments.questions.question_runner import QuestionRunner
    from deepwire.experiments.questions.question_runs import load_questions
    from deepwire.experiments.results.run_processes import Stopped

    loaded = load_questions(plan, folder, overrides or (), _tell)
    for name in only or ():
        if name not in loaded.plan.questions:
            raise UsageError(
                f"--only: the plan has no question {name!r}", f"it has {', '.join(loaded.plan.questions)}"
            )
    runner = QuestionRunner(loaded, folder, results or folder / "answers", _tell, jobs)
    try:
        runner.run_queue(only or (), retry=retry)
    except Stopped as stopped:
        _tell(f"stopped by {stopped.number.name}; the same command goes on from here")
        raise typer.Exit(128 + stopped.number) from None
    _tell(f"written: {results or folder / 'answers'}")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
