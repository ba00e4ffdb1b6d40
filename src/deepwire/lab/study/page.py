"""The page of some studies: Markdown with figures, one HTML page, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepwire.errors import LogFn, UsageError
from deepwire.io.atomic import disk_errors
from deepwire.io.output import write_output
from deepwire.lab.finding import Finding, to_json
from deepwire.lab.report import render, require_matplotlib, save_html, table_markdown
from deepwire.lab.study.findings import MEASURED, SAMPLES, findings
from deepwire.lab.study.plan import Plan
from deepwire.lab.study.store import StudyStore


def write_pages(
    plans: Sequence[tuple[Plan, StudyStore]], folder: Path, markdown: Path | None, tell: LogFn
) -> tuple[Sequence[Finding], Path]:
    """Write ``study.md``, ``study.json`` and ``study.html`` of all that is kept into a folder.

    Args:
        plans: Each with its results.
        folder: Where the pages go.
        markdown: A further place of the Markdown; it stays as it is while there is no result.
        tell: Receives a line where figures are left out, because matplotlib is not installed.

    Returns:
        The findings, and the page to look at.

    Raises:
        DataError: A result is damaged, or systems of a study were scored on different texts.
        UsageError: There is no result at all, and `markdown` would be replaced.
        ResourceError: A file cannot be written.
    """
    made, studies = findings(plans)
    title = plans[0][0].title if len(plans) == 1 else "Results"
    about = MEASURED.format(samples=SAMPLES)
    draws = True
    try:
        require_matplotlib()
    except UsageError as error:
        draws = False
        tell(f"no figures: {error}")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    pages = [folder / "study.md"]
    if markdown is not None:
        if not any(study.records for study in studies):
            raise UsageError(f"there is no result yet, so {markdown} stays as it is", "see --results")
        pages.append(markdown)
    for page in pages:
        write_output(page, _markdown(made, title, about, page, draws=draws))
    write_output(folder / "study.json", to_json(made, indent=1) + "\n")
    if draws:
        save_html(made, folder / "study.html", title, about)
    return made, pages[-1]


def _markdown(made: Sequence[Finding], title: str, about: str, page: Path, *, draws: bool) -> str:
    blocks = [f"# {title}", about]
    for number, finding in enumerate(made, 1):
        blocks += [f"## {finding.title}" if len(made) > 1 else "", finding.measured]
        for table in finding.tables:
            blocks += [f"**{table.title}**", table_markdown(table)]
        for figure in finding.figures if draws else ():
            path = page.with_suffix("") / f"{number}-{figure.name}.svg"
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(render(figure, "svg"))
            blocks.append(f"![{figure.title}]({path.parent.name}/{path.name})")
    return "\n\n".join(filter(None, blocks)) + "\n"
