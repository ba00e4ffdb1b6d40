"""Bars of the scores of directions, drawn as SVG; readable in black and white."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from deepwire.evaluation.multilingual.direction_table import (
    SIGNIFICANT,
    DirectionBlock,
    DirectionRow,
    DirectionsReport,
)

_WIDTH, _LEFT, _RIGHT = 900, 110, 130
_BAR, _GAP = 13, 10
_TOP, _BOTTOM = 50, 48
_SCREEN = 500
_TICKS = 6


def bars(report: DirectionsReport, block: DirectionBlock) -> str:
    """A picture with one bar for each direction by the first metric, and one for the baseline below it."""
    both = report.baseline is not None
    step = _BAR * (2 if both else 1) + _GAP
    height = _TOP + step * len(block.rows) + _BOTTOM
    tick = _tick(max(_values(block), default=0.0))
    most = tick * max(1, math.ceil(max(_values(block), default=0.0) / tick))
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    label = f"{report.metrics[0]} of each direction: {block.title}"
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" '
            f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
            'font-family="DejaVu Sans, sans-serif" font-size="12" fill="#1a1a1a">',
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><path d="M0 0V6" stroke="#1a1a1a" stroke-width="2"/>'
            "</pattern></defs>",
            *_axis(report, height, tick, most, scale),
            *(part for place, row in enumerate(block.rows) for part in _row(row, _TOP + place * step, scale)),
            *(_legend(report) if both else ()),
            "</svg>",
        ]
    )


def _values(block: DirectionBlock) -> list[float]:
    return [score.value for row in block.rows for score in (*row.scores[:1], *row.baseline[:1])]


def _tick(most: float) -> float:
    """A round distance of the marks on the axis, so that there are at most ``_TICKS``."""
    least = max(most, 1e-9) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def _axis(report: DirectionsReport, height: int, tick: float, most: float, scale: float) -> Iterator[str]:
    bottom = height - _BOTTOM
    tall = bottom - _TOP > _SCREEN  # the numbers below are out of sight from above
    for number in range(round(most / tick) + 1):
        x = _LEFT + number * tick * scale
        yield f'<path d="M{x:.1f} {_TOP - 4}V{bottom}" stroke="#ccc"/>'
        for y in (bottom + 16, *([_TOP - 8] if tall else [])):
            yield f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{number * tick:g}</text>'
    middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
    yield f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">{escape(report.metrics[0])} [%]</text>'
    yield f'<path d="M{_LEFT} {_TOP - 4}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="#1a1a1a"/>'


def _row(row: DirectionRow, y: int, scale: float) -> Iterator[str]:
    value = row.scores[0].value
    width = value * scale
    middle = y + _BAR * (2 if row.baseline else 1) / 2 + 4
    yield f'<text x="{_LEFT - 8}" y="{middle}" text-anchor="end">{escape(str(row.direction))}</text>'
    yield f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="#333"/>'
    shown = f"{value:.1f}"
    if row.baseline:
        other = row.baseline[0].value
        star = " *" if row.p_value is not None and row.p_value < SIGNIFICANT else ""
        shown += f" ({value - other:+.1f}{star})"
        yield (
            f'<rect x="{_LEFT}" y="{y + _BAR}" width="{other * scale:.1f}" height="{_BAR}" '
            'fill="url(#hatch)" stroke="#1a1a1a"/>'
        )
        width = max(width, other * scale)
    yield f'<text x="{_LEFT + width + 6:.1f}" y="{middle}">{shown}</text>'


def _legend(report: DirectionsReport) -> Iterator[str]:
    names = [("#333", report.system), ("url(#hatch)", report.baseline or "")]
    for place, (fill, name) in enumerate(names):
        x = _LEFT + place * 380
        yield f'<rect x="{x}" y="6" width="26" height="{_BAR}" fill="{fill}" stroke="#1a1a1a"/>'
        yield f'<text x="{x + 34}" y="17">{escape(_short(name))}</text>'


def _short(name: str) -> str:
    return name if len(name) <= 45 else f"...{name[-42:]}"
