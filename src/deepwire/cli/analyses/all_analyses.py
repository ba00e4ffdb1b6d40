"""``deepwire analyze report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.analyses.options import FindingOutputs, Html, Json, Output, Plots
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.analysis.report.finding import Finding

Subjects = Annotated[
    list[str],
    typer.Argument(metavar="MODEL|FINDINGS.json...", help="Models, and files that --json wrote before."),
]


def report(
    subjects: Subjects,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """Every analysis that needs nothing but the model, and findings made before, in one report.

    deepwire analyze report runs/a runs/b speed.json --html report.html
    """
    from deepwire.analysis.report.report_files import read_findings
    from deepwire.analysis.standard_analyses import analyse_all

    outputs = FindingOutputs(as_json, html, plots, output)
    findings: list[Finding] = []
    for subject in subjects:
        if Path(subject).suffix == ".json":
            findings += read_findings(Path(subject))
        else:
            findings += analyse_all([subject], lambda line: print(f"left out: {line}", file=sys.stderr))
    if not findings:
        raise UsageError("none of the analyses applies", "see 'deepwire analyze --help' for what each needs")
    outputs.write(findings, f"Analyses of {', '.join(subjects)}")
