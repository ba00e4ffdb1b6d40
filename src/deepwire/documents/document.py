"""What every kind of document has: units of text to translate, and the way back into the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Run(NamedTuple):
    """A stretch of text with one format.

    Attributes:
        text: As the reader sees it.
        fixed: Whether it stays as it is, such as a name of a variable; it is part of its sentence.
    """

    text: str
    fixed: bool = False


Unit = Sequence[Run]
"""A paragraph, heading, cell or subtitle: the runs of it in their order, whose sentences go across runs."""


class Document(Protocol):
    """A file that was read."""

    @property
    def units(self) -> Sequence[Unit]:
        """What is to be translated."""

    def written(self, translations: Sequence[Sequence[str]]) -> bytes:
        """The file with other texts: for each unit one for each of its runs."""


class Options(NamedTuple):
    """What can be asked for besides the languages.

    Attributes:
        source: Language of the document; empty = not known.
        target: Language of the translation; empty = not known.
        paths: Of JSON: which values are text; none = all strings.
    """

    source: str = ""
    target: str = ""
    paths: Sequence[str] = ()
