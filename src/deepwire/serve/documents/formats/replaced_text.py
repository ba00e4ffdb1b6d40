"""Files of which all but some stretches of text stays as it is, character by character; plain text, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from deepwire.serve.documents.document import Marks, Options, Pieces, Run, common, in_order
from deepwire.serve.documents.file_text import decoded


class Stretch(NamedTuple):
    """A stretch of a file.

    Attributes:
        begin, end: Where it stands.
        run: What is to be translated there.
    """

    begin: int
    end: int
    run: Run


Tags = Mapping[int, tuple[str, str]]
"""The tags of the elements of a unit, as the file has them."""


_NO_TAGS: Tags = MappingProxyType({})


class Block(NamedTuple):
    """A unit of a file.

    Attributes:
        stretches: What it consists of, in its order.
        tags: Of its elements; with any, there is nothing else between the stretches.
    """

    stretches: Sequence[Stretch]
    tags: Tags = _NO_TAGS


class ReplacedText:
    """A file with text at known places.

    Args:
        source: The whole file.
        blocks: The places, unit by unit, in their order.
        encode: What is written for a translation and the stretch of the file that it replaces; the stretch is
            empty where elements are put together anew.
    """

    def __init__(
        self,
        source: str,
        blocks: Sequence[Block],
        encode: Callable[[str, str], str] = lambda text, _raw: text,
    ) -> None:
        self._source, self._encode = source, encode
        # One without any has nothing that a reader reads, such as a space alone.
        self._blocks = [block for block in blocks if block.stretches]
        self.units: Sequence[Sequence[Run]] = [
            [stretch.run for stretch in block.stretches] for block in self._blocks
        ]

    def text_with(self, translations: Sequence[Pieces]) -> str:
        """The file with other texts; a run that is fixed, or stays the same, is not even written anew."""
        parts: list[str] = []
        at = 0
        for block, unit, pieces in zip(self._blocks, self.units, translations, strict=True):
            if list(pieces) == in_order(unit, [run.text for run in unit]):
                continue
            if block.tags:
                begin, end = _extent(block)
                parts += [self._source[at:begin], *self._put_together(block, pieces)]
                at = end
                continue
            for stretch, piece in zip(block.stretches, pieces, strict=True):
                raw = self._source[stretch.begin : stretch.end]
                same = stretch.run.fixed or piece.text == stretch.run.text
                parts += [self._source[at : stretch.begin], raw if same else self._encode(piece.text, raw)]
                at = stretch.end
        return "".join([*parts, self._source[at:]])

    def written(self, translations: Sequence[Pieces]) -> bytes:
        """The file with other texts, as UTF-8."""
        return self.text_with(translations).encode()

    def _put_together(self, block: Block, pieces: Pieces) -> Iterator[str]:
        """The pieces with the tags of the elements that they are in."""
        path: Marks = ()
        for piece in pieces:
            yield from _between(path, piece.marks, block.tags)
            path = piece.marks
            if piece.run is not None and block.stretches[piece.run].run.fixed:
                stretch = block.stretches[piece.run]
                yield self._source[stretch.begin : stretch.end]
            else:
                yield self._encode(piece.text, "")
        yield from _between(path, (), block.tags)


def _extent(block: Block) -> tuple[int, int]:
    """Where a block begins and ends, with the tags around its ends."""
    first, last = block.stretches[0], block.stretches[-1]
    before = sum(len(block.tags[mark][0]) for mark in first.run.marks)
    return first.begin - before, last.end + sum(len(block.tags[mark][1]) for mark in last.run.marks)


def _between(path: Marks, following: Marks, tags: Tags) -> Iterator[str]:
    """The tags where elements end and others begin."""
    same = common(path, following)
    for mark in reversed(path[same:]):
        yield tags[mark][1]
    for mark in following[same:]:
        yield tags[mark][0]


def read_text(content: bytes, options: Options) -> ReplacedText:  # noqa: ARG001 - as all readers
    """Read plain text, all of which is one unit.

    Raises:
        DataError: It is not UTF-8.
    """
    source = decoded(content)
    begin = len(source) - len(source.removeprefix("\ufeff"))
    return ReplacedText(source, [Block([Stretch(begin, len(source), Run(source[begin:]))])])
