"""The documents of a text of one side: lines as text, lines as tokens, and what of them is counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from deepwire.data.data_config import Unit
from deepwire.data.subwords.base import BOS, EOS, Vocabulary
from deepwire.data.text.pairs import is_blank

LINE_BREAK = BOS
"""Stands between the lines of a document: there, a line begins."""


def documents_of(lines: Iterable[str], unit: Unit) -> Iterator[list[str]]:
    """The lines of each document, as they are read; lines that are empty or only spaces are in none."""
    document: list[str] = []
    for line in lines:
        blank = is_blank(line)
        if not blank:
            document.append(line)
        if document and (unit == "lines" or blank):
            yield document
            document = []
    if document:
        yield document


def document_ids(lines: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    """The tokens of a document, its end symbol too."""
    ids: list[int] = []
    for tokens in vocabulary.encode_lines(lines):
        ids += [*tokens, LINE_BREAK]
    return [*ids[:-1], EOS]


def _bytes(line: str) -> int:
    return len(line.encode("utf-8", "surrogatepass"))


def words_and_bytes(lines: Sequence[str], unit: Unit) -> tuple[int, int]:
    """The size of a document: words between spaces, and bytes with all line ends.

    The empty line behind a document of several lines counts too: the bytes of all are those of their file.
    """
    ends = len(lines) + (unit == "documents")
    return sum(len(line.split()) for line in lines), sum(map(_bytes, lines)) + ends
