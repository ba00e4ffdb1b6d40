"""The files of a results page: JSON, Markdown and one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepwire.analysis.report.finding import Finding
from deepwire.analysis.report.report_files import save_html, save_json
from deepwire.analysis.report.text_pages import as_markdown
from deepwire.experiments.results.experiment_runner import ExperimentRunner
from deepwire.experiments.results.result_findings import build_report
from deepwire.io.atomic import disk_errors, write_json
from deepwire.io.output import write_output

JSON, FINDINGS, MARKDOWN, HTML = "results.json", "findings.json", "results.md", "results.html"


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
