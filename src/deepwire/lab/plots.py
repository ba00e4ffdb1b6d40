"""Figures drawn by matplotlib, readable in black and white.

Lines differ in shade, dashes and markers, bars in shade and hatches. Heat maps shade absolute values from
light to dark and mark negative ones by a minus sign; blank cells are white, as no value is.
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
from deepwire.lab.finding import Axis, BarChart, Figure, HeatMap, LineChart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as DrawnAxis
    from matplotlib.figure import Figure as Canvas
    from matplotlib.typing import RcKeyType

_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")
_MAX_UNCROWDED = 8  # lines, or ticks
_MAX_LABELS = 32  # of lines in a legend
_WIDE_RANGE = 1e4  # log axes with a smaller ratio of ends have ticks at 1, 2 and 5 times powers of ten
_LEGEND_WIDTH = 30  # letters in a line
_LETTER_WIDTH = 0.085  # inches, of a tick label
_MAX_NUMBERED_CELLS = 169  # heat maps with more cells show no numbers
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
# No date and no version of matplotlib, so that files are reproducible.
_METADATA = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {},
}


def require_matplotlib() -> None:
    """Raises a UsageError if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise UsageError(
            "figures are drawn by matplotlib, which is not installed",
            "pip install 'deepwire[analysis]'; text and --json work without it",
        )


def render(figure: Figure, form: str, caption: Sequence[str] = ()) -> bytes:
    """Draws a figure as ``png``, ``svg`` or ``pdf``; ``pdf`` is for papers, without title and caption.

    Args:
        figure: The figure.
        form: The format.
        caption: Paragraphs in small type below the figure.

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
            _add_caption(canvas, caption)
        canvas.savefig(buffer, format=form, metadata=_METADATA[form])
    return buffer.getvalue()


def svg(figure: Figure, caption: Sequence[str] = ()) -> str:
    """Draws a figure as an ``<svg>`` element for a web page; its ids begin with the figure's name."""
    text = render(figure, "svg", caption).decode()
    element = text[text.index("<svg") :].strip()
    element = re.sub(r'\bid="', f'id="{figure.name}-', element)
    element = re.sub(r"url\(#", f"url(#{figure.name}-", element)
    return re.sub(r'href="#', f'href="#{figure.name}-', element)


def _add_caption(canvas: Canvas, paragraphs: Sequence[str]) -> None:
    """Adds small text under the axes and all their labels and legends."""
    box = canvas.get_tightbbox()
    width = max(40, int(16 * box.width))  # 16 characters of this size fill an inch
    text = "\n".join(line for paragraph in paragraphs for line in textwrap.wrap(paragraph, width))
    left, top = box.x0 / canvas.get_figwidth(), (box.y0 - 0.08) / canvas.get_figheight()
    canvas.text(left, top, text, fontsize=7, color="0.3", va="top")


def _size(figure: Figure) -> tuple[float, float]:
    """Width and height in inches."""
    if isinstance(figure, HeatMap):
        rows, columns = len(figure.rows), len(figure.columns)
        field = 0.55 if rows * columns <= _MAX_NUMBERED_CELLS else 0.25
        return max(4.0, min(14.0, 1.8 + field * columns)), max(2.6, min(9.0, 1.0 + 0.75 * field * rows))
    if isinstance(figure, BarChart):
        return max(5.5, min(14.0, 1.5 + 0.22 * len(figure.categories) * (len(figure.series) + 0.7))), 3.6
    return 6.5, max(3.8, 0.15 * min(len(figure.series), _MAX_LABELS))


def _name_axes(axes: Axes, x: Axis, y: Axis) -> None:
    axes.set_xlabel(x.text)
    axes.set_ylabel("\n".join(textwrap.wrap(y.text, 36)))
    if x.log:
        axes.set_xscale("log")
        _format_log_ticks(axes.xaxis)
    if y.log and axes.dataLim.y1 > 0:  # there is a positive number
        axes.set_yscale("log")
        _format_log_ticks(axes.yaxis)
    if y.from_zero and axes.dataLim.y0 >= 0:
        axes.set_ylim(bottom=0)


def _format_log_ticks(axis: DrawnAxis) -> None:
    """Writes ticks of a log axis as plain numbers, with more than the powers of ten if its range is small."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    if high / low < _WIDE_RANGE:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.12g}"))


def _draw_lines(axes: Axes, figure: LineChart) -> None:
    from matplotlib.ticker import MaxNLocator

    count = len(figure.series)
    crowded = count > _MAX_UNCROWDED
    shades = _shades(count, ordered=figure.ordered, lightest=0.75)
    label_every = math.ceil(count / _MAX_LABELS)
    for number, line in enumerate(figure.series):
        axes.plot(
            line.x,
            _none_to_nan(line.y),
            # matplotlib leaves labels that begin with _ out of the legend.
            label="\n".join(textwrap.wrap(line.name, _LEGEND_WIDTH)) if number % label_every == 0 else "_",
            color=shades[number],
            linestyle="-" if crowded and figure.ordered else _DASHES[number % len(_DASHES)],
            marker=None if crowded and figure.ordered else _MARKERS[number % len(_MARKERS)],
            markersize=4,
            markevery=(0, max(1, len(line.x) // 12)),
            linewidth=0.9 if crowded else 1.4,
        )
        if line.low:
            low, high = _none_to_nan(line.low), _none_to_nan(line.high)
            axes.fill_between(line.x, low, high, color=shades[number], alpha=0.15, linewidth=0)
    _name_axes(axes, figure.x, figure.y)
    xs = sorted({x for line in figure.series for x in line.x})
    if figure.x.log and len(xs) <= _MAX_UNCROWDED:
        axes.set_xticks(xs, [f"{x:,.12g}" for x in xs])
        axes.set_xticks([], minor=True)
    elif not figure.x.log and all(x.is_integer() for x in xs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if len(xs) == 1:  # otherwise the ticks would be fractions around it
            axes.set_xlim(xs[0] - 1, xs[0] + 1)
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
        values = _none_to_nan(group.y)
        below = [y - low for low, y in zip(_none_to_nan(group.low), values, strict=False)]
        above = [high - y for y, high in zip(values, _none_to_nan(group.high), strict=False)]
        axes.bar(
            [category - 0.4 + (number + 0.5) * width for category in range(len(figure.categories))],
            values,
            width,
            label="\n".join(textwrap.wrap(group.name, _LEGEND_WIDTH)),
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
    long = _LETTER_WIDTH * max(map(len, figure.categories)) > 0.75 * _size(figure)[0] / len(figure.categories)
    axes.set_xticks(range(len(figure.categories)), figure.categories, rotation=90 if long else 0)
    if count > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_heat_map(canvas: Canvas, axes: Axes, figure: HeatMap) -> None:
    import matplotlib
    import numpy as np
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    values = np.array([_none_to_nan(row) for row in figure.drawn()], dtype=float)
    sizes = np.ma.masked_invalid(np.abs(values))
    if figure.value.log:
        sizes = np.ma.masked_less_equal(sizes, 0.0)
    low, high = (float(sizes.min()), float(sizes.max())) if sizes.count() else (1.0, 1.0)
    norm = LogNorm(low, max(high, low * 1.01)) if figure.value.log else Normalize(0.0, high or 1.0)
    # White is for blank cells.
    colors = matplotlib.colormaps["YlGnBu"](np.linspace(0.1, 1, 256))
    colormap = ListedColormap(colors).with_extremes(bad="white")
    image = axes.imshow(
        sizes, cmap=colormap.with_extremes(bad="white"), norm=norm, aspect="auto", interpolation="nearest"
    )
    negative = bool((values < 0).any())
    label = f"absolute {figure.value.text}; − marks negative" if negative else figure.value.text
    canvas.colorbar(image, ax=axes, label="\n".join(textwrap.wrap(label, 24)), fraction=0.046, pad=0.03)
    axes.grid(visible=False)
    _name_axes(axes, figure.column_axis, figure.row_axis)
    numbered = values.size <= _MAX_NUMBERED_CELLS
    for names, ticks in ((figure.columns, axes.set_xticks), (figure.rows, axes.set_yticks)):
        shown = range(0, len(names), math.ceil(len(names) / 40))
        ticks(shown, [names[i] for i in shown])
    if max(map(len, figure.columns)) > (9 if numbered else 2):
        axes.tick_params(axis="x", rotation=90)
    axes.tick_params(length=0, labelsize=8)
    digits = "#.2g" if figure.value.log else ".2f"
    for row, column in zip(*np.nonzero(~np.ma.getmaskarray(sizes)), strict=True):
        value = float(values[row, column])
        text = f"{value:{digits}}".replace("-", "−") if numbered else "−" if value < 0 else ""
        shade = "white" if float(norm(abs(value))) > 0.55 else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=shade)


def _shades(count: int, *, ordered: bool, lightest: float, darkest: float = 0.0) -> list[tuple[float, ...]]:
    """Colours of different lightness; if their order has no meaning, neighbours differ most."""
    import matplotlib

    steps = [darkest + (lightest - darkest) * number / max(1, count - 1) for number in range(count)]
    if not ordered and count > 3:
        half = (count + 1) // 2
        steps = [steps[number // 2 + (half if number % 2 else 0)] for number in range(count)]
    return [matplotlib.colormaps["viridis"](step) for step in steps]


def _none_to_nan(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
