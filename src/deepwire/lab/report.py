"""Findings as text, Markdown, figures by matplotlib, and one HTML page that needs no other file."""

from __future__ import annotations

import base64
import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deepwire.errors import UsageError
from deepwire.evaluation.comparison import aligned
from deepwire.io.atomic import disk_errors
from deepwire.io.output import write_output
from deepwire.lab.finding import BarChart, Figure, Finding, HeatMap, LineChart, Provenance, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas
    from matplotlib.typing import RcKeyType

FORMS = ("svg", "png", "pdf")
_WIDTH = 100
_LONGEST = 60  # rows of a figure's table in text
_MAX_NUMBERED_CELLS = 169  # heat maps with more cells show no numbers
_MAX_TICKS = 40
_LONG_NAMES = 80  # letters of all categories of a bar chart, from which on they are written upright
_WIDE_RANGE = 1e4  # log axes with a smaller ratio of ends have ticks at 1, 2 and 5 times powers of ten
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_STYLE: dict[RcKeyType, object] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.88",
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,  # whole numbers at the ticks, however near they are
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "svg.hashsalt": "deepwire",
}
# No date and no version of matplotlib, so that files are reproducible.
_METADATA = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {},
}


def as_text(findings: Sequence[Finding]) -> str:
    """All findings, one below the other."""
    return "\n\n\n".join("\n\n".join(_blocks(finding)) for finding in findings) + "\n"


def _blocks(finding: Finding) -> Iterator[str]:
    yield f"{finding.title}\n{'=' * min(len(finding.title), _WIDTH)}"
    yield textwrap.fill(finding.measured, _WIDTH)
    for table in finding.tables:
        yield table_text(table)
    known = {table.title for table in finding.tables}
    for figure in finding.figures:
        if figure.title in known:
            continue
        table = figure.table()
        whole = len(table.rows) <= _LONGEST
        shown = table_text(table) if whole else f"{table.title}\n({len(table.rows)} points)"
        yield shown if not figure.caption else f"{shown}\n{textwrap.fill(figure.caption, _WIDTH)}"
    notes = [textwrap.fill(f"Note: {note}", _WIDTH, break_long_words=False) for note in finding.notes]
    if notes:
        yield "\n".join(notes)
    yield "\n".join(f"{name}: {value}" for name, value in origin(finding.provenance))


def table_text(table: Table) -> str:
    """A table under its title: words flush left, numbers flush right."""
    head = [column.head for column in table.columns]
    body = table.shown()
    right = [table.is_numeric(number) for number in range(len(head))]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    return "\n".join([table.title, *aligned([head, ["-" * width for width in widths], *body], right)])


def table_markdown(table: Table) -> str:
    """A pipe table without its title: words flush left, numbers flush right."""
    right = [table.is_numeric(number) for number in range(len(table.columns))]
    lines = [
        [column.head for column in table.columns],
        ["---:" if flush else "---" for flush in right],
        *([_cell(text) or " " for text in row] for row in table.shown()),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    for mark in ("\\", "|", "*", "_", "<", "`"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def origin(provenance: Provenance) -> list[tuple[str, str]]:
    """Names and values of where the numbers come from, for people."""
    rows = []
    for model in provenance.models:
        update = "" if model.update is None else f", update {model.update}"
        rows.append(("model", f"{model.name}{update} (files {model.digest})"))
    rows += [("text", text) for text in provenance.data]
    if provenance.settings:
        rows.append(("settings", ", ".join(f"{name} {value}" for name, value in provenance.settings.items())))
    versions = f"deepwire {provenance.deepwire}, torch {provenance.torch}, Python {provenance.python}"
    rows += [("measured with", f"{versions}, {provenance.machine}"), ("date", provenance.date)]
    return [*rows, ("command", provenance.command)] if provenance.command else rows


def save_html(
    findings: Sequence[Finding],
    path: Path,
    title: str = "deepwire analysis",
    about: str = "",
    *,
    pictures: bool = True,
) -> None:
    """Write a page with all findings, `about` below its title, a table with its numbers below each figure.

    Raises:
        UsageError: There are figures to be drawn (`pictures`), and matplotlib is not installed.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Whatever a name holds, it is escaped; a misspelt variable is an error, not an empty place.
    environment = Environment(
        loader=PackageLoader("deepwire.lab"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.get_template("findings.html")

    def data_url(figure: Figure) -> str:
        return f"data:image/svg+xml;base64,{base64.b64encode(render(figure, 'svg')).decode()}"

    draw = data_url if pictures else lambda _figure: ""
    page = template.render(title=title, about=about, findings=findings, picture=draw, origin=origin)
    write_output(path, page)


def save_plots(findings: Sequence[Finding], folder: Path) -> list[Path]:
    """Draw every figure as PNG and SVG, and without title as PDF, into a folder; returns the files.

    A file is named after analysis and figure; several findings of one analysis are numbered.

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
            for form in FORMS:
                path = folder / f"{stem}-{figure.name}.{form}"
                with disk_errors(path):
                    path.write_bytes(render(figure, form))
                written.append(path)
    return written


def require_matplotlib() -> None:
    """Raises a UsageError where matplotlib is not installed, so that no figure can be drawn."""
    if find_spec("matplotlib") is None:
        raise UsageError("plots need matplotlib", "pip install 'deepwire[analysis]'")


def render(figure: Figure, form: str) -> bytes:
    """Draws a figure as ``png``, ``svg``, or ``pdf`` for papers, without title; needs matplotlib."""
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        canvas = Canvas(figsize=_size(figure))
        axes = canvas.add_subplot()
        match figure:
            case LineChart():
                _draw_lines(axes, figure)
            case BarChart():
                _draw_bars(axes, figure)
            case HeatMap():
                _draw_heat_map(canvas, axes, figure)
        if form != "pdf":
            axes.set_title("\n".join(textwrap.wrap(figure.title, 70)), loc="left")
        canvas.savefig(buffer, format=form, metadata=_METADATA[form])
    return buffer.getvalue()


def _size(figure: Figure) -> tuple[float, float]:
    """Width and height in inches."""
    if isinstance(figure, HeatMap):
        rows, columns = len(figure.rows), len(figure.columns)
        field = 0.55 if rows * columns <= _MAX_NUMBERED_CELLS else 0.25
        return max(4.0, min(14.0, 1.8 + field * columns)), max(2.6, min(9.0, 1.0 + 0.75 * field * rows))
    if isinstance(figure, BarChart):
        return max(5.5, min(14.0, 1.5 + 0.22 * len(figure.categories) * (len(figure.series) + 0.7))), 3.6
    return 6.5, max(3.8, 0.15 * len(figure.series))


def _name_axes(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel("\n".join(textwrap.wrap(y, 36)))


def _colours(count: int, *, ordered: bool) -> list[tuple[float, ...]]:
    """Colours that differ most; or where the order has a meaning, from dark to light."""
    import matplotlib

    if ordered or count > 10:
        return [matplotlib.colormaps["viridis"](0.9 * number / max(1, count - 1)) for number in range(count)]
    return [matplotlib.colormaps["tab10"](number) for number in range(count)]


def _draw_lines(axes: Axes, figure: LineChart) -> None:
    from matplotlib.ticker import MaxNLocator

    count = len(figure.series)
    for number, (line, colour) in enumerate(
        zip(figure.series, _colours(count, ordered=figure.ordered), strict=True)
    ):
        axes.plot(
            line.x,
            np.array(line.y, float),
            label=line.name,
            color=colour,
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4,
            markevery=max(1, len(line.x) // 12),
            linewidth=1.2,
        )
        if line.low:
            low, high = np.array(line.low, float), np.array(line.high, float)
            axes.fill_between(line.x, low, high, color=colour, alpha=0.15, linewidth=0)
    _name_axes(axes, figure.x, figure.y)
    if figure.x_log:
        axes.set_xscale("log")
        _format_log_ticks(axes.xaxis)
    if figure.y_log and axes.dataLim.y1 > 0:  # there is a positive number
        axes.set_yscale("log")
        _format_log_ticks(axes.yaxis)
    if not figure.x_log and all(x.is_integer() for line in figure.series for x in line.x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if count > 1:
        title = "\n".join(textwrap.wrap(figure.legend, 20)) or None
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title=title)


def _format_log_ticks(axis: Axis) -> None:
    """Writes ticks of a log axis as plain numbers, with more than the powers of ten if its range is small."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    if high / low < _WIDE_RANGE:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.12g}"))


def _draw_bars(axes: Axes, figure: BarChart) -> None:
    count = len(figure.series)
    width = 0.8 / count
    for number, (group, colour) in enumerate(zip(figure.series, _colours(count, ordered=False), strict=True)):
        values, low, high = (np.array(each, float) for each in (group.y, group.low, group.high))
        axes.bar(
            [category - 0.4 + (number + 0.5) * width for category in range(len(figure.categories))],
            values,
            width,
            label=group.name,
            color=colour,
            yerr=[values - low, high - values] if group.low else None,
            capsize=3,
        )
    _name_axes(axes, figure.x, figure.y)
    axes.grid(visible=False, axis="x")
    long = len(figure.categories) * max(map(len, figure.categories)) > _LONG_NAMES
    axes.set_xticks(range(len(figure.categories)), figure.categories, rotation=90 if long else 0)
    if count > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_heat_map(canvas: Canvas, axes: Axes, figure: HeatMap) -> None:
    values = np.ma.masked_invalid(np.array(figure.values, float))
    size = float(np.abs(values).max()) if values.count() else 0.0
    size = size or 1.0
    # Zero is white.
    image = axes.imshow(values, cmap="RdBu_r", vmin=-size, vmax=size, aspect="auto", interpolation="nearest")
    label = "\n".join(textwrap.wrap(figure.value, 24))
    canvas.colorbar(image, ax=axes, label=label, fraction=0.046, pad=0.03)
    axes.grid(visible=False)
    _name_axes(axes, figure.column_axis, figure.row_axis)
    for names, ticks in ((figure.columns, axes.set_xticks), (figure.rows, axes.set_yticks)):
        shown = range(0, len(names), math.ceil(len(names) / _MAX_TICKS))
        ticks(shown, [names[i] for i in shown])
    if max(map(len, figure.columns)) > 2:
        axes.tick_params(axis="x", rotation=90)
    axes.tick_params(length=0, labelsize=8)
    for row, column in np.argwhere(~np.ma.getmaskarray(values)) if values.size <= _MAX_NUMBERED_CELLS else ():
        value = float(values[row, column])
        shade = "white" if abs(value) > 0.7 * size else "black"
        text = f"{value:.2f}".replace("-", "−")
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=shade)
