"""Files of which all but some stretches of text stay as they are, character by character.

A reader of a format finds the text, and the markup within it, as `Item`s. `block_of` makes a unit of them,
whose elements may change their order, and `ReplacedText` writes the file with other texts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Literal, NamedTuple

from deepwire.errors import DataError
from deepwire.serve.documents.document import Marks, Options, Piece, Pieces, Run, common, in_order

Kind = Literal["text", "open", "close", "point"]
Change = tuple[int, int, str]
"""Where a part of a file begins and ends, and what is written in its place."""

_MAX_STRETCHES, _DEEPEST = 1000, 30
_ALL = -1
_SPACE = " \t\n\r\f"


class Item(NamedTuple):
    """A piece of a file.

    Attributes:
        begin, end: Where it stands.
        kind: Text, a tag that begins or ends an element, or what stands between words, such as an image.
        text: What a reader sees, and the model reads.
        name: Of the tag: the one that ends an element has that of its beginning.
        fixed: Text that stays as it is, or the beginning of an element of which all does.
    """

    begin: int
    end: int
    kind: Kind
    text: str = ""
    name: str = ""
    fixed: bool = False


class Stretch(NamedTuple):
    """A stretch of a file, and what is to be translated there."""

    begin: int
    end: int
    run: Run


Tags = Mapping[int | None, tuple[str, str]]
_NO_TAGS: Tags = MappingProxyType({})


class Block(NamedTuple):
    """A unit of a file.

    Attributes:
        stretches: What it consists of, in its order.
        tags: The tags of its elements. With any, all between its ends is put together anew.
        around: What text in an element, and text outside of all (None), is written between.
        extent: Where it begins and ends, if it is not where its stretches with their tags do.
    """

    stretches: Sequence[Stretch]
    tags: Tags = _NO_TAGS
    around: Tags = _NO_TAGS
    extent: tuple[int, int] | None = None


class ReplacedText:
    """A file with text at known places.

    Args:
        source: The whole file.
        blocks: The places, unit by unit.
        encode: What is written for a translation and the stretch of the file that it replaces; the stretch is
            empty where elements are put together anew.
    """

    def __init__(
        self,
        source: str,
        blocks: Iterable[Block],
        encode: Callable[[str, str], str] = lambda text, _raw: text,
    ) -> None:
        self.source, self._encode = source, encode
        # One without any has nothing that a reader reads, such as a space alone.
        self._blocks = [block for block in blocks if block.stretches]
        self.units: Sequence[Sequence[Run]] = [
            [stretch.run for stretch in block.stretches] for block in self._blocks
        ]

    def changes(self, translations: Sequence[Pieces]) -> Iterator[Change]:
        """The parts of the file that are written anew; a run that is fixed, or stays the same, is not."""
        for block, unit, pieces in zip(self._blocks, self.units, translations, strict=True):
            if list(pieces) == in_order(unit, [run.text for run in unit]):
                continue
            if block.tags:
                yield *_extent(block), "".join(self._put_together(block, pieces))
                continue
            for (begin, end, run), piece in zip(block.stretches, pieces, strict=True):
                if not run.fixed and piece.text != run.text:
                    yield begin, end, self._encode(piece.text, self.source[begin:end])

    def text_with(self, translations: Sequence[Pieces]) -> str:
        """The file with other texts."""
        return replaced(self.source, self.changes(translations))

    def render(self, translations: Sequence[Pieces]) -> bytes:
        """The file with other texts, as UTF-8."""
        return self.text_with(translations).encode()

    def _put_together(self, block: Block, pieces: Pieces) -> Iterator[str]:
        """The pieces with the tags of the elements that they are in."""
        # Signs that are the same at both ends, as in Markdown, are text where nothing is between them.
        signs = {mark for mark, (before, after) in block.tags.items() if before and before == after}
        empty = signs - {
            mark for piece in pieces if self._inside(block, piece).strip() for mark in piece.marks
        }
        path: Marks = ()
        for marks, together in groupby(
            pieces, key=lambda piece: tuple(mark for mark in piece.marks if mark not in empty)
        ):
            yield from _tags_between(path, marks, block.tags)
            path = marks
            text = "".join(self._inside(block, piece) for piece in together)
            innermost = next((mark for mark in reversed(marks) if mark in block.around), None)
            before, after = block.around.get(innermost, ("", ""))
            yield f"{before}{text}{after}" if text else ""
        yield from _tags_between(path, (), block.tags)

    def _inside(self, block: Block, piece: Piece) -> str:
        if piece.run is not None and block.stretches[piece.run].run.fixed:
            stretch = block.stretches[piece.run]
            return self.source[stretch.begin : stretch.end]
        return self._encode(piece.text, "")


def replaced(source: str, changes: Iterable[Change], begin: int = 0, end: int | None = None) -> str:
    """A text, or a part of it, with some changes; of two at one place the first one comes first."""
    parts: list[str] = []
    for first, last, text in sorted(changes, key=lambda change: change[0]):
        parts += [source[begin:first], text]
        begin = last
    return "".join([*parts, source[begin:end]])


def _extent(block: Block) -> tuple[int, int]:
    """Where a block begins and ends, with the tags around its ends."""
    if block.extent is not None:
        return block.extent
    first, last = block.stretches[0], block.stretches[-1]
    before = sum(len(block.tags[mark][0]) for mark in first.run.marks)
    return first.begin - before, last.end + sum(len(block.tags[mark][1]) for mark in last.run.marks)


def _tags_between(path: Marks, following: Marks, tags: Tags) -> Iterator[str]:
    """The tags where elements end and others begin."""
    same = common(path, following)
    for mark in reversed(path[same:]):
        yield tags[mark][1]
    for mark in following[same:]:
        yield tags[mark][0]


def block_of(source: str, items: Sequence[Item], *, trimmed: bool = True) -> Block:
    """The unit that some items are.

    Where each element that begins in it ends in it, they are its elements. Otherwise, and where they are many
    or nested deeply, its tags stay where they are between its texts.

    Args:
        source: The file.
        items: In their order, some with text.
        trimmed: Whether spaces at both ends are left out; they must be written as they are read.
    """
    texts = (item for item in items if item.kind == "text")
    flat = Block([Stretch(item.begin, item.end, Run(item.text, item.fixed)) for item in texts])
    return _nested(source, items, trimmed=trimmed) or flat


def _nested(source: str, items: Sequence[Item], *, trimmed: bool) -> Block | None:
    stretches: list[Stretch] = []
    path: list[tuple[Item, int]] = []  # elements, and the number of the first stretch in each
    marks: Marks = ()
    tags: dict[int | None, tuple[str, str]] = {}
    for number, item in enumerate(items):
        if item.kind == "open":
            path.append((item, len(stretches)))
            marks = (*marks, number)
        elif item.kind != "close":
            fixed = item.fixed or item.kind == "point"
            # An element must not lose its text: `****` is no markup.
            run = Run(item.text, fixed, marks, filled=bool(marks) and not fixed)
            stretches.append(Stretch(item.begin, item.end, run))
        else:
            if not path or path[-1][0].name != item.name:
                return None
            begin, first = path.pop()
            marks, mark = marks[:-1], marks[-1]
            text = "".join(stretch.run.text for stretch in stretches[first:])
            if begin.fixed or not text.strip():
                # It is one with all that is in it.
                stretches[first:] = [Stretch(begin.begin, item.end, Run(text, fixed=True, marks=marks))]
            else:
                tags[mark] = source[begin.begin : begin.end], source[item.begin : item.end]
        if len(path) > _DEEPEST or len(stretches) > _MAX_STRETCHES:
            return None
    if path:
        return None
    if trimmed:
        stretches = _trimmed(source, stretches)
    if not tags and any(stretch.run.fixed for stretch in stretches):
        # Fixed runs find their places as elements do: within one that has no tags.
        stretches = [stretch._replace(run=stretch.run._replace(marks=(_ALL,))) for stretch in stretches]
        tags[_ALL] = "", ""
    return Block(stretches, tags)


def _trimmed(source: str, stretches: Sequence[Stretch]) -> list[Stretch]:
    """Without what has no text, and without spaces, at both ends; where they are in an element, with them."""
    filled = [place for place, (_, _, run) in enumerate(stretches) if run.marks or run.text.strip()]
    trimmed = list(stretches[filled[0] : filled[-1] + 1]) if filled else []
    for place in (0, -1):
        if trimmed and not (trimmed[place].run.fixed or trimmed[place].run.marks):
            begin, end, run = trimmed[place]
            raw = source[begin:end]
            if place:
                end, text = begin + len(raw.rstrip(_SPACE)), run.text.rstrip(_SPACE)
            else:
                begin, text = end - len(raw.lstrip(_SPACE)), run.text.lstrip(_SPACE)
            trimmed[place] = Stretch(begin, end, run._replace(text=text))
    return trimmed


def decoded(content: bytes) -> str:
    """Text in UTF-8 (or UTF-16 with a byte order mark).

    Raises:
        DataError: It is in another encoding.
    """
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as fault:
        line = content[: fault.start].decode(encoding).count("\n") + 1
        said = f"line {line}: not {encoding.upper()} (byte {fault.start})"
        raise DataError(said, "convert it to UTF-8 first") from None


_LONG_NUMBER = re.compile(r"(?<=&#)0+(?=[0-9])|&#[0-9]{8,}")


def unescaped(text: str) -> str:
    """The text with characters for its references, as browsers show it: U+FFFD where there is no such one.

    However many digits a number has: Python refuses to read more than 4300.
    """

    return html.unescape(_LONG_NUMBER.sub("&#9999999", text))  # no character has so large a number


def plain_text(source: str) -> ReplacedText:
    """Text without any markup, all of which is one unit."""
    begin = len(source) - len(source.removeprefix("\ufeff"))
    return ReplacedText(source, [Block([Stretch(begin, len(source), Run(source[begin:]))])])


def read_text(content: bytes, options: Options) -> ReplacedText:  # noqa: ARG001 - as all readers
    """Read plain text.

    Raises:
        DataError: It is not UTF-8.
    """
    return plain_text(decoded(content))
