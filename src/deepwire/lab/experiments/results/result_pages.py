"""The files of a results page: JSON, Markdown and one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deepwire.errors import ModelError, UsageError
from deepwire.io.atomic import disk_errors, write_json
from deepwire.io.output import write_output
from deepwire.io.regular_files import read_json
from deepwire.lab.experiments.results.experiment_runner import ExperimentRunner
from deepwire.lab.experiments.results.result_findings import build_report
from deepwire.lab.report.finding import Finding
from deepwire.lab.report.report_files import save_html, save_json
from deepwire.lab.report.text_pages import as_markdown

JSON, FINDINGS, MARKDOWN, HTML = "results.json", "findings.json", "results.md", "results.html"


def require_own_pages(folder: Path) -> None:
    """See that pages which are in a folder are those of an earlier call, before they are written anew.

    Raises:
        UsageError: They are not.
    """
    there = [path for name in (JSON, FINDINGS, MARKDOWN, HTML) if (path := folder / name).exists()]
    if not there or (folder / "runs").is_dir() or (folder / "measured").is_dir():
        return
    with suppress(ModelError):
        if "plan" in read_json(folder / JSON):
            return
    raise UsageError(
        f"--folder: {there[0]} is not from this command, and would be replaced", "name another folder"
    )


def write_pages(
    runner: ExperimentRunner, markdown: Path | None = None, *, html: bool = True
) -> Sequence[Finding]:
    """Write what there is so far into the folder of the results.

    Args:
        runner: The plan and its folder.
        markdown: Write the Markdown there too, where at least one run was measured.
        html: Whether to write the page, which needs matplotlib.

    Raises:
        DataError: A translation or the test set is gone.
        ResourceError: A file cannot be written.
    """
    folder, plan = runner.folder, runner.loaded.plan
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    report = build_report(runner)
    findings, gathered = report.findings, report.gathered
    record = {
        "format": 1,
        "plan": plan.model_dump(mode="json"),
        "runs": [result.model_dump(mode="json") for result in gathered.results],
        "failed": [
            {"run": run.name, "exit_code": why.exit_code, "message": why.message}
            for run, why in gathered.failures
        ],
        "missing": gathered.waiting(),
        "trials": runner.search.record(),
        "comparisons": [{"title": pair.title, **pair.report.to_json()} for pair in report.comparisons],
    }
    write_json(folder / JSON, record)
    save_json(findings, folder / FINDINGS)
    text = as_markdown(findings, plan.title, plan.about)
    write_output(folder / MARKDOWN, text)
    if markdown is not None and gathered.results:
        write_output(markdown, text)
    if html:
        save_html(findings, folder / HTML, plan.title, plan.about)
    return findings
