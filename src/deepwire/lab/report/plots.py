"""Figures as PNG and SVG, drawn by matplotlib so that a black and white print can be read.

Lines differ in shade, dashes and markers, bars in shade and hatches; shades of a heat map only get darker,
negative numbers carry a minus sign, and blank fields are white, which no number is.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from deepwire.errors import UsageError
from deepwire.lab.report.tables_and_figures import Axis, BarChart, Figure, HeatMap, LineChart, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure as Canvas
    from matplotlib.typing import RcKeyType

Format = Literal["png", "svg"]

_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")
_FEW = 8
_NAMED = 32
_MARKS = 12
_TICKS = 12
_APART = 0.07  # of a logarithmic axis, between two numbers
_DECADES = 1e4  # of a logarithmic axis, below which its numbers are written out
_LEGEND = 30  # letters in a line
_LETTER = 0.085  # inches: the width of a letter at a tick
_WITH_NUMBERS = 169
_DOTS = 150
_STYLE: dict[RcKeyType, object] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.88",
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,  # whole numbers at the ticks, however near they are
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "deepwire",
}


def require_matplotlib() -> None:
    """See that figures can be drawn, before an analysis that takes hours begins.

    Raises:
        UsageError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise UsageError(
            "figures are drawn by matplotlib, which is not installed",
            "pip install 'deepwire[analysis]'; text and --json work without it",
        )


def png(figure: Figure, below: Sequence[str] = ()) -> bytes:
    """A figure as PNG, 150 dots an inch.

    Args:
        figure: What to draw.
        below: Paragraphs in small type below it.

    Raises:
        UsageError: matplotlib is not installed.
    """
    return _render(figure, below, "png")


def svg(figure: Figure, below: Sequence[str] = ()) -> str:
    """A figure as one ``<svg>`` element to stand in a page: its ids begin with the figure's name.

    Args:
        figure: What to draw.
        below: Paragraphs in small type below it.

    Raises:
        UsageError: matplotlib is not installed.
    """
    text = _render(figure, below, "svg").decode()
    element = text[text.index("<svg") :].strip()
    element = re.sub(r'\bid="', f'id="{figure.name}-', element)
    element = re.sub(r"url\(#", f"url(#{figure.name}-", element)
    return re.sub(r'href="#', f'href="#{figure.name}-', element)


def _render(figure: Figure, below: Sequence[str], form: Format) -> bytes:
    require_matplotlib()
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        canvas = _draw(figure, below)
        # Without these the file would hold the date and the version of matplotlib, and differ every day.
        unmarked = {"Date": None, "Creator": None, "Format": None, "Type": None} if form == "svg" else {}
        canvas.savefig(buffer, format=form, dpi=_DOTS, bbox_inches="tight", metadata=unmarked)
    return buffer.getvalue()


def _draw(figure: Figure, below: Sequence[str]) -> Canvas:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=_size(figure))
    axes = canvas.add_subplot()
    match figure:
        case LineChart():
            _draw_lines(axes, figure)
        case BarChart():
            _draw_bars(axes, figure)
        case HeatMap():
            _draw_heat_map(canvas, axes, figure)
    axes.set_title("\n".join(textwrap.wrap(figure.title, 70)), loc="left")
    if any(below):
        _write_below(canvas, below)
    return canvas


def _write_below(canvas: Canvas, paragraphs: Sequence[str]) -> None:
    """Small type under all that is drawn, however far labels and legends reach."""
    drawn = canvas.get_tightbbox()
    width = max(40, int(16 * drawn.width))  # of characters of this size, 16 fill an inch
    text = "\n".join(line for paragraph in paragraphs for line in textwrap.wrap(paragraph, width))
    canvas.text(
        drawn.x0 / canvas.get_figwidth(),
        (drawn.y0 - 0.08) / canvas.get_figheight(),
        text,
        fontsize=7,
        color="0.3",
        va="top",
    )


def _size(figure: Figure) -> tuple[float, float]:
    """Width and height in inches."""
    if isinstance(figure, HeatMap):
        rows, columns = len(figure.rows), len(figure.columns)
        field = 0.55 if rows * columns <= _WITH_NUMBERS else 0.25
        return max(4.0, min(14.0, 1.8 + field * columns)), max(2.6, min(9.0, 1.0 + 0.75 * field * rows))
    if isinstance(figure, BarChart):
        return max(5.5, min(14.0, 1.5 + 0.22 * len(figure.categories) * (len(figure.series) + 0.7))), 3.6
    return 6.5, max(3.8, 0.15 * min(len(figure.series), _NAMED))


def _name_axes(axes: Axes, x: Axis, y: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xlabel(x.text)
    axes.set_ylabel("\n".join(textwrap.wrap(y.text, 36)))
    if x.log:
        axes.set_xscale("log")
    if y.log and axes.dataLim.y1 > 0:  # there is a positive number
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if high / low < _DECADES:  # powers of ten alone would leave the axis without names
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:,.12g}"))
    if y.from_zero and axes.dataLim.y0 >= 0:
        axes.set_ylim(bottom=0)


def _folded(name: str) -> str:
    """A name for a legend: a long path of a model takes more lines, not the room of the drawing."""
    return "\n".join(textwrap.wrap(name, _LEGEND)) or name


def _are_apart(places: Sequence[float]) -> bool:
    """Whether numbers below all places of a logarithmic axis leave each other room."""
    steps = [math.log(after / before) for before, after in pairwise(places) if before > 0]
    return not steps or min(steps) >= _APART * sum(steps)


def _draw_lines(axes: Axes, figure: LineChart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    count = len(figure.series)
    shades = _shades(count, ordered=figure.ordered, lightest=0.75)
    crowded = count > _FEW and figure.ordered  # dashes of many lines would only be noise
    for number, line in enumerate(figure.series):
        axes.plot(
            line.x,
            _plotted(line.y),
            label=_folded(line.name),
            color=shades[number],
            linestyle="-" if crowded else _DASHES[number % len(_DASHES)],
            marker=_MARKERS[number % len(_MARKERS)] if count <= _FEW else None,
            markersize=4,
            markevery=(0, max(1, len(line.x) // _MARKS)),
            linewidth=0.9 if crowded else 1.4,
        )
        if line.low:
            axes.fill_between(
                line.x, _plotted(line.low), _plotted(line.high), color=shades[number], alpha=0.15, linewidth=0
            )
    _name_axes(axes, figure.x, figure.y)
    places = sorted({place for line in figure.series for place in line.x})
    if figure.x.log and len(places) <= _TICKS and _are_apart(places):
        axes.set_xticks(places, [f"{place:,.12g}" for place in places])
        axes.set_xticks([], minor=True)
    elif figure.x.log:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:,.12g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif all(place.is_integer() for place in places):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if len(places) == 1:  # otherwise the ticks would be fractions around it
            axes.set_xlim(min(places) - 1, max(places) + 1)
    if count > _FEW:
        _name_lines_at_their_ends(axes, figure)
    elif count > 1:
        axes.legend(
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            handlelength=3.5,
            title="\n".join(textwrap.wrap(figure.legend, 20)) or None,
        )


def _name_lines_at_their_ends(axes: Axes, figure: LineChart) -> None:
    """Names beside the ends of the lines, spread so that none covers another, each led to by a thin line.

    Of very many only every second or third has one.
    """
    bottom, top = axes.get_ylim()
    log = axes.get_yscale() == "log"

    def height(value: float) -> float:
        """Share of the way up the axis."""
        if log:
            return (math.log(value) - math.log(bottom)) / (math.log(top) - math.log(bottom))
        return (value - bottom) / (top - bottom)

    last_points: dict[int, tuple[float, float]] = {}
    every = math.ceil(len(figure.series) / _NAMED)
    for number, line in enumerate(figure.series):
        backwards = zip(reversed(line.x), reversed(line.y), strict=True)
        last = next(
            ((x, value) for x, value in backwards if value is not None and (value > 0 or not log)), None
        )
        if last is not None and number % every == 0:
            last_points[number] = last
    ends = sorted((height(value), number) for number, (_, value) in last_points.items())
    gap = min(0.048, 1.0 / max(len(ends), 1))
    place = -math.inf
    places = []
    for wanted, number in ends:
        place = max(wanted, place + gap)
        places.append((place, number))
    # What was pushed above the top moves down again.
    ceiling = 1.0
    for index in range(len(places) - 1, -1, -1):
        moved = min(places[index][0], ceiling)
        places[index] = (moved, places[index][1])
        ceiling = moved - gap
    for place, number in places:
        axes.annotate(
            figure.series[number].name,
            xy=last_points[number],
            xytext=(1.06, place),
            xycoords="data",
            textcoords="axes fraction",
            fontsize=7,
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": "0.5",
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0.5),  # to the left of the name: from its middle, lines cross other names
            },
            annotation_clip=False,
        )
    axes.margins(x=0)
    axes.text(1.06, 1.04, figure.legend, transform=axes.transAxes, va="bottom", fontsize=8)


def _draw_bars(axes: Axes, figure: BarChart) -> None:
    count = len(figure.series)
    shades = _shades(count, ordered=True, lightest=0.95, darkest=0.35)
    width = 0.8 / count
    for number, group in enumerate(figure.series):
        places = [category - 0.4 + (number + 0.5) * width for category in range(len(figure.categories))]
        axes.bar(
            places,
            _plotted(group.y),
            width,
            label=_folded(group.name),
            color=shades[number],
            edgecolor="black",
            linewidth=0.6,
            hatch=_HATCHES[number % len(_HATCHES)],
            yerr=_errors(group),
            capsize=3,
        )
    _name_axes(axes, figure.x, figure.y)
    axes.grid(visible=False, axis="x")
    if axes.get_yscale() == "linear":
        axes.axhline(0, color="black", linewidth=0.6)
    longest = max(map(len, figure.categories))
    long = _LETTER * longest > 0.75 * _size(figure)[0] / len(figure.categories)
    axes.set_xticks(range(len(figure.categories)), figure.categories, rotation=90 if long else 0)
    if count > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _errors(group: Series) -> list[list[float]] | None:
    """How far the range reaches below and above each value."""
    if not group.low:
        return None
    triples = list(zip(group.low, group.y, group.high, strict=True))
    below = [0.0 if low is None or y is None else y - low for low, y, _ in triples]
    above = [0.0 if high is None or y is None else high - y for _, y, high in triples]
    return [below, above]


def _draw_heat_map(canvas: Canvas, axes: Axes, figure: HeatMap) -> None:
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize

    values = np.array([_plotted(row) for row in figure.drawn()], dtype=float)
    size = np.ma.masked_invalid(np.abs(values))
    if figure.value.log:
        size = np.ma.masked_less_equal(size, 0.0)
    low, high = (float(size.min()), float(size.max())) if size.count() else (1.0, 1.0)
    norm = LogNorm(low, max(high, low * 1.01)) if figure.value.log else Normalize(0.0, high or 1.0)
    image = axes.imshow(size, cmap=_ramp(), norm=norm, aspect="auto", interpolation="nearest")
    negative = bool((values < 0).any())
    label = f"absolute {figure.value.text}; − marks negative" if negative else figure.value.text
    canvas.colorbar(image, ax=axes, label="\n".join(textwrap.wrap(label, 24)), fraction=0.046, pad=0.03)
    axes.grid(visible=False)
    _name_axes(axes, figure.column_axis, figure.row_axis)
    _name_fields(axes, figure)
    numbers = values.size <= _WITH_NUMBERS
    for row, column in zip(*np.nonzero(~np.ma.getmaskarray(size)), strict=True):
        value = float(values[row, column])
        text = _in_field(value) if numbers else "−" if value < 0 else ""
        if text:
            dark = float(norm(abs(value))) > 0.55
            axes.text(
                column, row, text, ha="center", va="center", fontsize=7, color="white" if dark else "black"
            )


def _in_field(value: float) -> str:
    """Two significant digits, with the zeros that belong to them: 0.80 beside 0.66."""
    text = f"{value:#.2g}" if value else "0"
    return text.removesuffix(".").replace("-", "−")


def _name_fields(axes: Axes, figure: HeatMap) -> None:
    """Names of rows and columns; where they would crowd, every second or third."""
    every = (math.ceil(len(figure.columns) / 40), math.ceil(len(figure.rows) / 40))
    columns = range(0, len(figure.columns), every[0])
    rows = range(0, len(figure.rows), every[1])
    wide = len(figure.columns) * len(figure.rows) <= _WITH_NUMBERS
    long = max(map(len, figure.columns)) > (9 if wide else 2)
    axes.set_xticks(columns, [figure.columns[column] for column in columns], rotation=90 if long else 0)
    axes.set_yticks(rows, [figure.rows[row] for row in rows])
    axes.tick_params(length=0, labelsize=8)


def _ramp() -> Colormap:
    """Shades from light, but not white, to dark; their lightness falls all the way."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    whole = matplotlib.colormaps["YlGnBu"]
    ramp = ListedColormap([whole(0.1 + 0.9 * step / 255) for step in range(256)])
    return ramp.with_extremes(bad="white")


def _shades(count: int, *, ordered: bool, lightest: float, darkest: float = 0.0) -> list[str]:
    """Colours whose lightness differs; neighbours in a list without an order differ most."""
    import matplotlib
    from matplotlib.colors import to_hex

    ramp = matplotlib.colormaps["viridis"]
    steps = [darkest + (lightest - darkest) * number / max(1, count - 1) for number in range(count)]
    if not ordered and count > 3:
        half = (count + 1) // 2
        steps = [steps[number // 2 + (half if number % 2 else 0)] for number in range(count)]
    return [to_hex(ramp(step)) for step in steps]


def _plotted(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
