"""The options of every analysis, the models that it opens, and what is made of its findings."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from deepwire.cli.line_by_line import warn
from deepwire.cli.options import set_parameters, specified
from deepwire.errors import UsageError
from deepwire.io.output import STDOUT, check_output, write_output

if TYPE_CHECKING:
    from deepwire.data.languages import Direction
    from deepwire.lab.subject import ParallelText, Scorer

Findings: TypeAlias = Sequence[Any]  # of `deepwire.lab.finding.Finding`
Runs = Annotated[list[str], typer.Argument(metavar="MODEL...", help="Run directories or models.")]
Source = Annotated[Path | None, typer.Option("--source", "-s", help="Source text. Default: data.test.")]
Reference = Annotated[Path | None, typer.Option("--reference", "-r", help="Reference of --source.")]
Sentences = Annotated[int | None, typer.Option(min=1, help="Number of sentences, from the beginning.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses per sentence. Default: the model's own.")]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON with all numbers.")]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a self-contained page with the plots.")]
Plots = Annotated[Path | None, typer.Option("--plots", help="Folder for all figures, as PNG, SVG and PDF.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File for the text or JSON.")]


_MOST = 100_000


def numbers(text: str) -> list[int]:
    """Whole numbers from ``1,2,4``; none from an empty text.

    Raises:
        BadParameter: The text is something else, or a number is below 1 or enormous.
    """
    parts = text.split(",") if text else []
    if not all(part.strip().isdecimal() and 1 <= int(part) <= _MOST for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of numbers from 1 to {_MOST:,}, such as 1,2,4")
    return [int(part) for part in parts]


def analysis(command: Callable[..., Findings]) -> Callable[..., None]:
    """Make a command of a function that returns findings: with options that say where these are written.

    Its first parameter is the model or models, or whatever else it looks at.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())

    def run(
        as_json: Json = False, html: Html = None, plots: Plots = None, output: Output = None, **given: Any
    ) -> None:
        subject = given[own[0].name]
        models = [subject] if isinstance(subject, str) else subject
        read = [*map(Path, models), *(value for value in given.values() if isinstance(value, Path))]
        _check_outputs(html, plots, output, read, models)
        findings = command(**given)
        _write(findings, as_json, html, plots, output)

    *outputs, _ = inspect.signature(run, eval_str=True).parameters.values()
    set_parameters(wraps(command)(run), [*own, *outputs])
    return run


def _check_outputs(
    html: Path | None, plots: Path | None, output: Path | None, read: Sequence[Path], models: Sequence[str]
) -> None:
    """Check before the work that files can be written and are none that is read, or a model's test text."""
    from deepwire.evaluation.texts import test_files
    from deepwire.lab.report import require_matplotlib

    if plots is not None:
        require_matplotlib()
        if plots.exists() and not plots.is_dir():
            raise UsageError(f"{plots}: is a file, but --plots needs a folder")
    written = [path for path in (html, output) if path is not None]
    for path in written:
        check_output(path, [*read, *(file for name in models for file in test_files(name))])
    if html is not None and output is not None and html.resolve() == output.resolve():
        raise UsageError(f"--html and --output are both {html}", "write them to two files")


def _write(
    findings: Findings, as_json: bool, html: Path | None, plots: Path | None, output: Path | None
) -> None:
    """Write text or JSON, then the page, then the plots."""
    from deepwire.lab.finding import to_json
    from deepwire.lab.report import as_text, save_html, save_plots

    write_output(
        STDOUT if output is None else output, f"{to_json(findings)}\n" if as_json else as_text(findings)
    )
    sys.stdout.flush()
    if html is not None:
        drawn = find_spec("matplotlib") is not None
        if not drawn:
            warn(f"{html}: without plots: matplotlib is not installed")
        title = findings[0].title if len(findings) == 1 else "Analyses"
        save_html(findings, html, title, pictures=drawn)
    if plots is not None:
        save_plots(findings, plots)


def open_scorers(
    models: Sequence[str],
    pairs: ParallelText,
    beam: int | None,
    device: str,
    precision: str,
    direction: Direction | None = None,
) -> list[Scorer]:
    """Load models to translate and score one text.

    Args:
        models: MODEL names.
        pairs: The text.
        beam: Hypotheses per sentence; None: as the models have it.
        device, precision: As in ``deepwire translate``.
        direction: Of the text; needed by models of several directions.

    Raises:
        UsageError: A model does not translate in the direction.
    """
    from deepwire.evaluation.texts import SearchSettings, selected_targets
    from deepwire.lab.subject import Scorer

    search = SearchSettings(specified(beam=beam), device, precision)
    targets = selected_targets(models, direction)
    return [Scorer(name, pairs, search, warn, to=to) for name, to in zip(models, targets, strict=True)]
