"""Texts as a program gives them to `translate` and `score`: checked one by one, taken apart into lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple, TypeGuard, TypeVar, cast

from deepwire.data.text.pairs import plain
from deepwire.decoding.text_alignment import Link, joined
from deepwire.decoding.translation_io import Candidate, Request
from deepwire.errors import UsageError

Line = TypeVar("Line")
_END = object()
_LINE_BREAK = re.compile("(\r?\n)")
_LAST_BREAK = re.compile(r"\r?\n\Z")


def require_several(lines: object) -> None:
    """A single text is a sequence of its characters, which nobody wants translated one by one.

    Raises:
        UsageError: These are no texts.
    """
    if not _is_iterable(lines) or isinstance(lines, str | bytes):
        raise UsageError(f"not texts but {type(lines).__name__}", 'give a list of texts: ["..."]')


def _is_iterable(values: object) -> TypeGuard[Iterable[object]]:
    """Whether values come one by one; an array of numpy without dimensions only seems to have some."""
    try:
        iter(cast("Iterable[object]", values))
    except TypeError:
        return False
    return True


def checked_texts(texts: object, *, lines: bool) -> Iterator[str]:
    """Texts one after the other; of lines, a line break at the end counts as none.

    Raises:
        UsageError: One of them is no text, or they are none at all: this is said at once.
    """
    require_several(texts)

    def one_by_one() -> Iterator[str]:
        for number, text in enumerate(cast("Iterable[object]", texts), 1):
            checked = _text_of(number, text)
            yield _LAST_BREAK.sub("", checked) if lines else checked

    return one_by_one()


def with_each(lines: Iterable[Line], values: object, name: str) -> Iterator[tuple[Line, str]]:
    """Each text with what belongs to it, a text as well.

    Args:
        lines: The texts.
        values: As many.
        name: What errors call the values.

    Raises:
        UsageError: They are no texts, or more or fewer than the lines.
    """
    if not _is_iterable(values) or isinstance(values, str | bytes):
        raise UsageError(f"{name}: give one for each text, not {type(values).__name__}", "give a list")
    for number, (line, value) in enumerate(zip_longest(lines, values, fillvalue=_END), 1):
        if line is _END or value is _END:
            many = (
                f"only {number - 1} for more texts" if value is _END else f"more than the {number - 1} texts"
            )
            raise UsageError(f"{name}: {many}", "give one for each text")
        if not isinstance(value, str):
            raise UsageError(f"{name}: number {number} must be a text, not {type(value).__name__}")
        yield cast("Line", line), value


def requests_of(lines: Iterable[object], prefixes: object = None, to: object = None) -> Iterator[Request]:
    """A request for each text.

    Args:
        lines: The texts, or requests for some.
        prefixes: What each translation must begin with; None = what requests say.
        to: The language to translate each into; None = what requests say.

    Raises:
        UsageError: One of them is no text, or there are more or fewer than there are lines.
    """
    require_several(lines)
    requests = (request_of(number, text) for number, text in enumerate(lines, 1))
    if prefixes is not None:
        started = with_each(requests, prefixes, "prefixes")
        requests = (replace(request, prefix=prefix) for request, prefix in started)
    if to is not None:
        directed = with_each(requests, to, "to")
        requests = (replace(request, to=language) for request, language in directed)
    return requests


def request_of(line: int, text: object) -> Request:
    """A request for a text that stands at `line`, counted from 1.

    Raises:
        UsageError: It is no text.
    """
    return text if isinstance(text, Request) else Request(_text_of(line, text))


def _text_of(line: int, text: object) -> str:
    if not isinstance(text, str):
        raise UsageError(f"line {line}: must be a text, not {type(text).__name__}")
    return text


def pairs_of(pairs: Iterable[object]) -> Iterator[tuple[str, str]]:
    """Source and target texts, checked one after the other.

    Raises:
        UsageError: One is no pair of texts.
    """
    hint = 'give a list of pairs: score([("...", "...")])'
    if not _is_iterable(pairs):
        raise UsageError(f"not pairs but {type(pairs).__name__}", hint)
    for number, pair in enumerate(pairs, 1):
        match pair:
            case [str(source), str(target)]:
                yield source, target
            case _:
                parts = [type(part).__name__ for part in pair] if isinstance(pair, tuple | list) else []
                given = " of ".join([type(pair).__name__, *([" and ".join(parts)] if parts else [])])
                raise UsageError(f"pair {number}: must be a source and a target text, not {given}", hint)


def split_lines(request: Request) -> tuple[list[Request], list[str]]:
    """A request for each line of a text, and what comes after each of them in the text.

    The prefix is that of the first line. A line break at the end of the text counts as none, as that of a
    line read from a file.
    """
    parts = [*_LINE_BREAK.split(_LAST_BREAK.sub("", request.text)), ""]
    first = replace(request, text=parts[0])
    return [first, *(replace(first, text=line, prefix="") for line in parts[2::2])], parts[1::2]


class AlignedText(NamedTuple):
    """A translation, and what of it comes from where.

    Attributes:
        text: The translation.
        links: Words of the source and of the translation that belong together, `(0, 1)` the first and the
            second one; or subwords, where `decoding.alignment.units` says so.
    """

    text: str
    links: tuple[Link, ...]


def aligned_lines(
    lines: Sequence[Request], candidates: Sequence[Candidate], line_breaks: Sequence[str]
) -> AlignedText:
    """A text of several lines, what comes after each, and the best translation of each, which is aligned."""
    parts, texts = [], ["", ""]
    for request, candidate, line_break in zip(lines, candidates, line_breaks, strict=True):
        if candidate.alignment is not None:
            parts.append((candidate.alignment, len(texts[0]), len(texts[1])))
        texts = [texts[0] + plain(request.text) + line_break, texts[1] + candidate.text + line_break]
    return AlignedText(texts[1], joined(texts[0], texts[1], parts).links)
