"""Texts that a program gives: each a line to translate, or several lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from deepwire.decoding.translation_io import Request
from deepwire.errors import UsageError

_LINE_BREAK = re.compile("(\r?\n)")
_LAST_BREAK = re.compile(r"\r?\n\Z")


def require_several(lines: object) -> None:
    """A single text is a sequence of its characters, which nobody wants translated one by one.

    Raises:
        UsageError: These are no texts.
    """
    if not isinstance(lines, Iterable) or isinstance(lines, str | bytes):
        raise UsageError(f"not texts but {type(lines).__name__}", 'give a list of texts: translate(["..."])')


def request_of(line: int, given: object) -> Request:
    """A request for a text that stands at `line`, counted from 1.

    Raises:
        UsageError: It is no text.
    """
    if isinstance(given, str):
        return Request(given)
    if not isinstance(given, Request):
        raise UsageError(f"line {line}: must be a text, not {type(given).__name__}")
    return given


def pairs_of(given: Iterable[object]) -> Iterator[tuple[str, str]]:
    """Source and target texts, checked one after the other.

    Raises:
        UsageError: One is no pair of texts.
    """
    for number, pair in enumerate(given, 1):
        match pair:
            case [str(source), str(target)]:
                yield source, target
            case _:
                parts = [type(part).__name__ for part in pair] if isinstance(pair, tuple | list) else []
                what = " of ".join([type(pair).__name__, *([" and ".join(parts)] if parts else [])])
                raise UsageError(
                    f"pair {number}: must be a source and a target text, not {what}",
                    'give a list of pairs: score([("...", "...")])',
                )


def cut(request: Request) -> tuple[list[Request], list[str]]:
    """A request for each line of a text, and what comes after each of them in the text.

    The prefix is that of the first line. A line break at the end of the text counts as none, as that of a
    line read from a file.
    """
    parts = [*_LINE_BREAK.split(_LAST_BREAK.sub("", request.text)), ""]
    first = replace(request, text=parts[0])
    return [first, *(replace(first, text=line, prefix="") for line in parts[2::2])], parts[1::2]
