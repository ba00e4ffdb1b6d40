"""Findings written to files and read again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepwire.analysis.report.finding import Finding, from_json, to_json
from deepwire.analysis.report.html_page import as_html
from deepwire.analysis.report.plots import png, svg
from deepwire.errors import DataError
from deepwire.io.atomic import disk_errors, write_text
from deepwire.io.output import write_output


def save_json(findings: Sequence[Finding], path: Path) -> None:
    """Write findings for `read_findings`, in one step.

    Raises:
        ResourceError: The file cannot be written.
    """
    write_text(path, to_json(findings, indent=1) + "\n")


def read_findings(path: Path) -> tuple[Finding, ...]:
    """Read what `save_json` wrote, or what a command printed with ``--json``.

    Raises:
        DataError: The file cannot be read, or holds something else.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror or error}") from error
    return from_json(text, str(path))


def save_html(
    findings: Sequence[Finding],
    path: Path,
    title: str = "deepwire analysis",
    about: str = "",
    *,
    pictures: bool = True,
) -> None:
    """Write findings as one page that needs no other file, in one step; the arguments are those of `as_html`.

    Raises:
        ResourceError: The file cannot be written.
        UsageError: There are figures to be drawn, and matplotlib is not installed; or there is no such
            folder.
    """
    write_output(path, as_html(findings, title, about, pictures=pictures))


def save_plots(findings: Sequence[Finding], folder: Path) -> list[Path]:
    """Draw every figure as PNG and SVG into a folder, which is made where it is missing.

    A file is named after analysis and figure; several findings of one analysis are numbered.

    Returns:
        The files that were written.

    Raises:
        ResourceError: A file cannot be written.
        UsageError: matplotlib is not installed.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, finding in enumerate(findings, 1):
        again = sum(other.analysis == finding.analysis for other in findings) > 1
        stem = f"{finding.analysis}-{number}" if again else finding.analysis
        for figure in finding.figures:
            place = folder / f"{stem}-{figure.name}"
            below = (figure.caption, finding.subject)
            write_output(place.with_suffix(".svg"), svg(figure, below) + "\n")
            with disk_errors(place):
                place.with_suffix(".png").write_bytes(png(figure, below))
            written += [place.with_suffix(".svg"), place.with_suffix(".png")]
    return written
