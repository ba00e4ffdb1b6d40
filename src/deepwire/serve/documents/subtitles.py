"""SubRip and WebVTT: numbers, times, settings, styles and notes stay; each cue keeps its lines."""

from __future__ import annotations

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise, zip_longest

from deepwire.errors import DataError
from deepwire.serve.documents.document import Options, Run
from deepwire.serve.documents.marked_text import Block, ReplacedText, Stretch, decoded, unescaped

_MOMENT = r"[ \t]*(?:\d+:)?\d+:\d+(?:[.,]\d+)?"
_TIME = re.compile(rf"^{_MOMENT}[ \t]*-->{_MOMENT}.*$", re.MULTILINE)
_CUE_TEXT = re.compile(r"\r?\n(.*?)(?=(?:\r?\n)[ \t]*(?:\r?\n|\Z)|\Z)", re.DOTALL)
_NUMBER = re.compile(r"(?:\r?\n[ \t]*\d+[ \t]*)?\r?\n\Z")
_MARKUP = re.compile(r"<[^<>\n]*>|\{\\[^{}\n]*\}|\[br\]")
_DASH = re.compile(rf"^(?:{_MARKUP.pattern}|[ \t])*[-\u2013\u2014][ \t]*", re.MULTILINE)
_BREAK = re.compile(r"\r?\n")


def read_subtitles(content: bytes, options: Options) -> ReplacedText:  # noqa: ARG001 - as all readers
    """Read subtitles.

    Raises:
        DataError: It is not UTF-8, or there is no cue in it.
    """
    source = decoded(content)
    is_vtt = source.removeprefix("\ufeff").startswith("WEBVTT")
    blocks = []
    times = list(_TIME.finditer(source))
    for time, following in zip_longest(times, times[1:]):
        text = _CUE_TEXT.match(source, time.end(), _end(source, time, following))
        if text is not None and text[1].strip():
            parts = _speeches(source, text.start(1), text.end(1))
            blocks += [Block(list(_stretches(source, *part, is_vtt=is_vtt))) for part in parts]
    if not times and not is_vtt:
        raise DataError("no subtitles: there is no line such as 00:00:01,000 --> 00:00:03,000")
    return ReplacedText(source, blocks, _wrapped_and_escaped if is_vtt else _wrapped)


def _end(source: str, time: re.Match[str], following: re.Match[str] | None) -> int:
    """Where a cue ends at the latest: before the number of the next one, if no empty line comes first."""
    if following is None:
        return len(source)
    number = _NUMBER.search(source, time.end(), following.start())
    return following.start() if number is None else number.start()


def _speeches(source: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Where the text of a cue is: all of it, or behind each dash where several people speak."""
    dashes = list(_DASH.finditer(source, begin, end))
    if len(dashes) < 2 or dashes[0].start() != begin:
        return [(begin, end)]
    ends = [
        dash.end() + len(source[dash.end() : next_dash.start()].rstrip())
        for dash, next_dash in pairwise(dashes)
    ]
    return [(dash.end(), stop) for dash, stop in zip(dashes, [*ends, end], strict=True) if dash.end() < stop]


def _stretches(source: str, begin: int, end: int, *, is_vtt: bool) -> Iterator[Stretch]:
    """The text of a cue between its tags; line breaks are spaces. WebVTT has entities."""
    at = begin
    for match in [*_MARKUP.finditer(source, begin, end), None]:
        stop = end if match is None else match.start()
        if stop > at:
            text = _BREAK.sub(" ", source[at:stop])
            yield Stretch(at, stop, Run(unescaped(text) if is_vtt else text))
        if match is not None:
            at = match.end()


def _wrapped(text: str, raw: str) -> str:
    """The text with as many line breaks as there were, where its words allow it."""
    breaks = _BREAK.findall(raw)
    spaces = [match.start() for match in re.finditer(" ", text.rstrip())]
    lines: list[str] = []
    begin = 0
    for left in range(len(breaks), 0, -1):
        ideal = begin + (len(text) - begin) / (left + 1)
        first = bisect_right(spaces, begin)
        behind = bisect_left(spaces, ideal, first)
        nearest = spaces[max(first, behind - 1) : behind + 1]
        if not nearest:
            break
        place = min(nearest, key=lambda place: abs(place - ideal))
        lines.append(text[begin:place])
        begin = place + 1
    return (breaks[0] if breaks else "").join([*lines, text[begin:]])


def _wrapped_and_escaped(text: str, raw: str) -> str:
    return html.escape(_wrapped(text, raw), quote=False)
