"""Text with markup in it, such as of a paragraph: what is an element, and what is a place between words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from deepwire.serve.documents.document import Marks, Run
from deepwire.serve.documents.formats.replaced_text import Block, Stretch

Kind = Literal["text", "open", "close", "point"]
_MOST_STRETCHES, _DEEPEST = 1000, 30
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


def block_of(source: str, items: Sequence[Item], *, trimmed: bool = True) -> Block:
    """The unit that some items are.

    Where each element that begins in it ends in it, they are its elements. Otherwise, and where they are many
    or nested deeply, its tags stay where they are between its texts.

    Args:
        source: The file.
        items: In their order, some with text.
        trimmed: Whether spaces at both ends are left out; they must be written as they are read.
    """
    block = _nested(source, items, trimmed=trimmed)
    if block is None:
        texts = [item for item in items if item.kind == "text"]
        return Block([Stretch(item.begin, item.end, Run(item.text, item.fixed)) for item in texts])
    return block


class _Open(NamedTuple):
    item: Item
    first: int
    """The number of the first stretch in it."""


def _nested(source: str, items: Sequence[Item], *, trimmed: bool) -> Block | None:
    stretches: list[Stretch] = []
    path: list[_Open] = []
    marks: Marks = ()
    tags: dict[int, tuple[str, str]] = {}
    for number, item in enumerate(items):
        raw = source[item.begin : item.end]
        if item.kind == "open":
            path.append(_Open(item, len(stretches)))
            marks = (*marks, number)
        elif item.kind != "close":
            fixed = item.fixed or item.kind == "point"
            # An element must not lose its text: `****` is no markup.
            run = Run(item.text, fixed, marks, filled=bool(marks) and not fixed)
            stretches.append(Stretch(item.begin, item.end, run))
        else:
            if not path or path[-1].item.name != item.name:
                return None
            begin, first = path.pop()
            marks, mark = marks[:-1], marks[-1]
            text = "".join(stretch.run.text for stretch in stretches[first:])
            if begin.fixed or not text.strip():
                # It is one with all that is in it.
                stretches[first:] = [Stretch(begin.begin, item.end, Run(text, fixed=True, marks=marks))]
            else:
                tags[mark] = source[begin.begin : begin.end], raw
        if len(path) > _DEEPEST or len(stretches) > _MOST_STRETCHES:
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
    trimmed = list(stretches)
    while trimmed and not trimmed[0].run.marks and not trimmed[0].run.text.strip():
        del trimmed[0]
    while trimmed and not trimmed[-1].run.marks and not trimmed[-1].run.text.strip():
        trimmed.pop()
    if trimmed and not (trimmed[0].run.fixed or trimmed[0].run.marks):
        begin, end, run = trimmed[0]
        begin += len(source[begin:end]) - len(source[begin:end].lstrip(_SPACE))
        trimmed[0] = Stretch(begin, end, run._replace(text=run.text.lstrip(_SPACE)))
    if trimmed and not (trimmed[-1].run.fixed or trimmed[-1].run.marks):
        begin, end, run = trimmed[-1]
        end = begin + len(source[begin:end].rstrip(_SPACE))
        trimmed[-1] = Stretch(begin, end, run._replace(text=run.text.rstrip(_SPACE)))
    return trimmed
