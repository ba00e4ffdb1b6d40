"""A document of any kind: units of text to translate, and the way back into the file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple, Protocol

from deepwire.errors import LogFn

Marks = tuple[int, ...]
"""Numbers of elements, outermost first; that of the whole unit is negative."""


class Run(NamedTuple):
    """A stretch of text with one format.

    Attributes:
        text: As the reader sees it.
        fixed: Whether it stays as it is, such as a name of a variable; it is part of its sentence. Without
            text it is a place, such as that of an image.
        filled: Whether it must not lose all its text, as a link would. With `fixed`, it is the result of a
            field, which takes the place of its translation.
        marks: The elements of the unit that it is in. Where a unit has any, its translation may have them in
            another order.
    """

    text: str
    fixed: bool = False
    marks: Marks = ()
    filled: bool = False


Unit = Sequence[Run]
"""A paragraph, heading, cell or subtitle: the runs of it in their order, whose sentences go across runs."""


class Piece(NamedTuple):
    """A stretch of a translated unit.

    Attributes:
        text: Of a fixed run its own.
        run: The place of the run that it stands for; None: it has the format of its elements alone.
        marks: The elements that it is in.
    """

    text: str
    run: int | None = None
    marks: Marks = ()


Pieces = Sequence[Piece]
"""A translated unit. Of a unit without marks there is a piece for each run, in their order. Of another each
fixed run has one, and each element has some, which stand together."""


def common(marks: Marks, other: Marks) -> int:
    """How many elements two pieces are in together."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(marks, other, strict=False))))


def in_order(unit: Unit, texts: Sequence[str]) -> list[Piece]:
    """Pieces of a unit whose runs have these texts, in the order of the runs."""
    return [Piece(text, place, run.marks) for place, (run, text) in enumerate(zip(unit, texts, strict=True))]


class Document(Protocol):
    """A parsed file."""

    @property
    def units(self) -> Sequence[Unit]:
        """The texts to translate."""

    def render(self, translations: Sequence[Pieces]) -> bytes:
        """The file with translations of its units."""


class Options(NamedTuple):
    """Options of reading a document.

    Attributes:
        source: Language of the document; empty = not known.
        target: Language of the translation; empty = not known.
        paths: Of JSON: which values are text; none = all strings.
        warn: Called with warnings, such as a path that the document does not have.
    """

    source: str = ""
    target: str = ""
    paths: Sequence[str] = ()
    warn: LogFn = lambda _: None
