"""``deepwire results``: many systems trained, scored and timed by one plan, on one page."""

from __future__ import annotations

import sys
import time
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
    from deepwire.lab.experiments.results.experiment_runner import ExperimentRunner

_SHARE = 20
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN.yaml", help="Systems, directions and seeds.")]
Folder = Annotated[
    Path, typer.Option(help="Where runs, measurements and pages are kept; the same folder goes on.")
]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Train and measure only this system; repeatable.")
]
Direction = Annotated[
    list[str] | None, typer.Option(help="Train and measure only in this direction; repeatable.")
]
ReportOnly = Annotated[bool, typer.Option("--report-only", help="Train nothing; write the pages anew.")]
Markdown = Annotated[
    Path | None,
    typer.Option(
        help="Also write the Markdown there (docs/reports/results-short-runs.md), where runs were measured."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the tables at the end.")]


def results(
    plan: PlanFile,
    overrides: Overrides = None,
    folder: Folder = Path("runs/results"),
    only: Only = None,
    direction: Direction = None,
    jobs: Jobs = 1,
    retry: Retry = False,
    report_only: ReportOnly = False,
    markdown: Markdown = None,
    quiet: Quiet = False,
) -> None:
    """Train, score and time many systems, and write one page: ranking and claims, or many directions.

    Whatever is done is kept in the folder: after an interruption the same command goes on. A run that fails
    is shown as failed, and the others follow. Writes results.json, results.md and results.html (the last
    with matplotlib).

    deepwire results examples/results/multi30k.yaml --folder runs/results

    deepwire results examples/results/multi30k.yaml seeds=[1] --only pre-norm --only gtrans

    deepwire results examples/results/six-directions.yaml text=multi30k/raw --only residual --only bilingual
    """
    from deepwire.io.output import check_output
    from deepwire.lab.experiments.results.experiment_runner import ExperimentRunner
    from deepwire.lab.experiments.results.planned_runs import load_plan
    from deepwire.lab.experiments.results.result_pages import require_own_pages, write_pages
    from deepwire.lab.experiments.results.run_processes import Stopped
    from deepwire.lab.report.text_pages import as_text

    check_folder(folder)
    require_own_pages(folder)
    loaded = load_plan(plan, folder, overrides or ())
    check_names("--only", only or (), loaded.plan.systems)
    check_names("--direction", direction or (), loaded.plan.directions)
    if markdown is not None:
        check_output(markdown, [plan])
    html = can_plot("results.html")
    runner = ExperimentRunner(loaded, folder, tell, jobs)
    if report_only:
        runner.check_report()
    else:
        try:
            pages = _Pages(runner, html=html)
            runner.run_plan(only or (), direction or (), retry=retry, after=pages.keep_up)
        except Stopped as stopped:  # the tests on the pages take their time, which who stops it may not have
            told = stopped_by(stopped)
            tell("the pages may lack what was measured last; --report-only writes them anew")
            raise told from None
    findings = write_pages(runner, markdown, html=html)
    if not quiet:
        sys.stdout.write(as_text(findings))
    tell(f"written: {folder / 'results.html' if html else folder / 'results.md'}")


class _Pages:
    """Keeps the pages up to date while runs go on, in at most a twentieth of the time."""

    def __init__(self, runner: ExperimentRunner, *, html: bool) -> None:
        self._runner, self._html, self._due = runner, html, 0.0

    def keep_up(self) -> None:
        """Write the pages, unless that was done not long ago."""
        from deepwire.lab.experiments.results.result_pages import write_pages

        begun = time.monotonic()
        if begun >= self._due:
            write_pages(self._runner, html=self._html)
            ended = time.monotonic()
            self._due = ended + _SHARE * (ended - begun)
