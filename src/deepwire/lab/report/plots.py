"""Figures drawn by matplotlib so that a black and white print can be read.

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
from typing import TYPE_CHECKING

from deepwire.errors import UsageError
from deepwire.lab.report.finding import Axis, BarChart, Figure, HeatMap, LineChart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as DrawnAxis
    from matplotlib.figure import Figure as Canvas
    from matplotlib.typing import RcKeyType

_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")
_FEW = 8
_NAMED = 32
_DECADES = 1e4  # of a logarithmic axis, below which its numbers are written out
_LEGEND = 30  # letters in a line
_LETTER = 0.085  # inches: the width of a letter at a tick
_WITH_NUMBERS = 169
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
    "savefig.bbox": "tight",
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "svg.hashsalt": "deepwire",
}
# Without these a file would hold the date and the version of matplotlib, and differ every day.
_UNMARKED = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {},
}


def require_matplotlib() -> None:
    """Refuse to begin what needs figures, where they cannot be drawn.

    Raises:
        UsageError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise UsageError(
            "figures are drawn by matplotlib, which is not installed",
            "pip install 'deepwire[analysis]'; text and --json work without it",
        )


def drawn(figure: Figure, form: str, below: Sequence[str] = ()) -> bytes:
    """A figure as ``png``, ``svg``, or for a paper, whose text says what it is, plain as ``pdf``.

    `below` are paragraphs in small type below it.

    Raises:
        UsageError: matplotlib is not installed.
    """
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
            _write_below(canvas, below)
        canvas.savefig(buffer, format=form, metadata=_UNMARKED[form])
    return buffer.getvalue()


def svg(figure: Figure, below: Sequence[str] = ()) -> str:
    """A figure as one ``<svg>`` element to stand in a page: its ids begin with the figure's name."""
    text = drawn(figure, "svg", below).decode()
    element = text[text.index("<svg") :].strip()
    element = re.sub(r'\bid="', f'id="{figure.name}-', element)
    element = re.sub(r"url\(#", f"url(#{figure.name}-", element)
    return re.sub(r'href="#', f'href="#{figure.name}-', element)


def _write_below(canvas: Canvas, paragraphs: Sequence[str]) -> None:
    """Small type under all that is drawn, however far labels and legends reach."""
    box = canvas.get_tightbbox()
    width = max(40, int(16 * box.width))  # of characters of this size, 16 fill an inch
    text = "\n".join(line for paragraph in paragraphs for line in textwrap.wrap(paragraph, width))
    left, top = box.x0 / canvas.get_figwidth(), (box.y0 - 0.08) / canvas.get_figheight()
    canvas.text(left, top, text, fontsize=7, color="0.3", va="top")


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
    axes.set_xlabel(x.text)
    axes.set_ylabel("\n".join(textwrap.wrap(y.text, 36)))
    if x.log:
        axes.set_xscale("log")
        _write_out(axes.xaxis)
    if y.log and axes.dataLim.y1 > 0:  # there is a positive number
        axes.set_yscale("log")
        _write_out(axes.yaxis)
    if y.from_zero and axes.dataLim.y0 >= 0:
        axes.set_ylim(bottom=0)


def _write_out(axis: DrawnAxis) -> None:
    """Numbers of a logarithmic axis as people write them, where powers of ten alone would be too few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    if high / low < _DECADES:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:,.12g}"))


def _draw_lines(axes: Axes, figure: LineChart) -> None:
    from matplotlib.ticker import MaxNLocator

    count = len(figure.series)
    crowded = count > _FEW
    shades = _shades(count, ordered=figure.ordered, lightest=0.75)
    every = math.ceil(count / _NAMED)
    for number, line in enumerate(figure.series):
        axes.plot(
            line.x,
            _plotted(line.y),
            # Of very many only every second or third has a name.
            label="\n".join(textwrap.wrap(line.name, _LEGEND)) if number % every == 0 else "_",
            color=shades[number],
            linestyle="-" if crowded and figure.ordered else _DASHES[number % len(_DASHES)],
            marker=None if crowded and figure.ordered else _MARKERS[number % len(_MARKERS)],
            markersize=4,
            markevery=(0, max(1, len(line.x) // 12)),
            linewidth=0.9 if crowded else 1.4,
        )
        if line.low:
            low, high = _plotted(line.low), _plotted(line.high)
            axes.fill_between(line.x, low, high, color=shades[number], alpha=0.15, linewidth=0)
    _name_axes(axes, figure.x, figure.y)
    places = {place for line in figure.series for place in line.x}
    if figure.x.log and len(places) <= _FEW:
        axes.set_xticks(sorted(places), [f"{place:,.12g}" for place in sorted(places)])
        axes.set_xticks([], minor=True)
    elif not figure.x.log and all(place.is_integer() for place in places):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if len(places) == 1:  # otherwise the ticks would be fractions around it
            axes.set_xlim(min(places) - 1, max(places) + 1)
    if count > 1:
        axes.legend(
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            handlelength=3.5,
            fontsize=7 if crowded else None,
            title="\n".join(textwrap.wrap(figure.legend, 20)) or None,
        )


def _draw_bars(axes: Axes, figure: BarChart) -> None:
    count = len(figure.series)
    shades = _shades(count, ordered=True, lightest=0.95, darkest=0.35)
    width = 0.8 / count
    for number, group in enumerate(figure.series):
        values = _plotted(group.y)
        below = [y - low for low, y in zip(_plotted(group.low), values, strict=False)]
        above = [high - y for y, high in zip(values, _plotted(group.high), strict=False)]
        axes.bar(
            [place - 0.4 + (number + 0.5) * width for place in range(len(figure.categories))],
            values,
            width,
            label="\n".join(textwrap.wrap(group.name, _LEGEND)),
            color=shades[number],
            edgecolor="black",
            linewidth=0.6,
            hatch=_HATCHES[number % len(_HATCHES)],
            yerr=[below, above] if group.low else None,
            capsize=3,
        )
    _name_axes(axes, figure.x, figure.y)
    axes.grid(visible=False, axis="x")
    if axes.get_yscale() == "linear":
        axes.axhline(0, color="black", linewidth=0.6)
    long = _LETTER * max(map(len, figure.categories)) > 0.75 * _size(figure)[0] / len(figure.categories)
    axes.set_xticks(range(len(figure.categories)), figure.categories, rotation=90 if long else 0)
    if count > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_heat_map(canvas: Canvas, axes: Axes, figure: HeatMap) -> None:
    import matplotlib
    import numpy as np
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    values = np.array([_plotted(row) for row in figure.drawn()], dtype=float)
    size = np.ma.masked_invalid(np.abs(values))
    if figure.value.log:
        size = np.ma.masked_less_equal(size, 0.0)
    low, high = (float(size.min()), float(size.max())) if size.count() else (1.0, 1.0)
    norm = LogNorm(low, max(high, low * 1.01)) if figure.value.log else Normalize(0.0, high or 1.0)
    # From light, but not white, to dark.
    ramp = ListedColormap(matplotlib.colormaps["YlGnBu"](np.linspace(0.1, 1, 256))).with_extremes(bad="white")
    image = axes.imshow(size, cmap=ramp, norm=norm, aspect="auto", interpolation="nearest")
    negative = bool((values < 0).any())
    label = f"absolute {figure.value.text}; − marks negative" if negative else figure.value.text
    canvas.colorbar(image, ax=axes, label="\n".join(textwrap.wrap(label, 24)), fraction=0.046, pad=0.03)
    axes.grid(visible=False)
    _name_axes(axes, figure.column_axis, figure.row_axis)
    numbers = values.size <= _WITH_NUMBERS
    for names, ticks in ((figure.columns, axes.set_xticks), (figure.rows, axes.set_yticks)):
        places = range(0, len(names), math.ceil(len(names) / 40))
        ticks(places, [names[place] for place in places])
    if max(map(len, figure.columns)) > (9 if numbers else 2):
        axes.tick_params(axis="x", rotation=90)
    axes.tick_params(length=0, labelsize=8)
    digits = "#.2g" if figure.value.log else ".2f"
    for row, column in zip(*np.nonzero(~np.ma.getmaskarray(size)), strict=True):
        value = float(values[row, column])
        text = f"{value:{digits}}".replace("-", "−") if numbers else "−" if value < 0 else ""
        shade = "white" if float(norm(abs(value))) > 0.55 else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=shade)


def _shades(count: int, *, ordered: bool, lightest: float, darkest: float = 0.0) -> list[tuple[float, ...]]:
    """Colours whose lightness differs; neighbours in a list without an order differ most."""
    import matplotlib

    steps = [darkest + (lightest - darkest) * number / max(1, count - 1) for number in range(count)]
    if not ordered and count > 3:
        half = (count + 1) // 2
        steps = [steps[number // 2 + (half if number % 2 else 0)] for number in range(count)]
    return [matplotlib.colormaps["viridis"](step) for step in steps]


def _plotted(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
