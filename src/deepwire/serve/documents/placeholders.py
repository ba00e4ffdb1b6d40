"""Parts of a message that a program fills in or reads stay: %s, {name}, ${x}, tags and addresses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from deepwire.data.text.placeholders import find_placeholders, message_branches
from deepwire.serve.documents.hypertext import ENDS_P, INLINE, VOID
from deepwire.serve.documents.marked_text import Item

_NAME = re.compile(r"</?([^\s/<>]+)")
_LONE_BREAKS = frozenset(["br", "hr", "li", "p"])
"""Elements that part two texts also where nothing ends them."""
_POINTS = INLINE & VOID
_DEEPEST = 10
"""So many branches may be within each other."""


def items_of(*texts: str) -> list[list[Item]]:
    """The text of a message, of which there may be several parts, with tags as markup.

    Placeholders but for numbers are fixed text. A tag in which nothing ends that it begins is fixed text
    too, such as `<file>`, unless HTML has an inline element of that name. Of a plural or select of ICU the
    branches are texts of their own, between breaks.
    """
    items = list(_items("\n".join(texts), 0))
    closed = {item.name for item in items if item.kind == "close"}
    settled = [_settled(item, closed) for item in items]
    found, start = [], 0
    for text in texts:
        found.append([part for item in settled if (part := _part(item, start, start + len(text)))])
        start += len(text) + 1
    return found


def _part(item: Item, start: int, stop: int) -> Item | None:
    """The part of an item that is in one of the texts, with its place in that; None if none is."""
    begin, end = max(item.begin, start), min(item.end, stop)
    if begin >= end:
        return None
    whole = (begin, end) == (item.begin, item.end) or item.name
    text = item.text if whole else item.text[begin - item.begin : end - item.begin]
    return item._replace(begin=begin - start, end=end - start, text=text)


def _items(text: str, start: int, depth: int = 0) -> Iterator[Item]:
    """All of a text that starts there, or in a branch; a tag that may begin an element has its own text."""
    at = 0
    for begin, end, kind in find_placeholders(text):
        if kind == "number":
            continue
        yield from _plain(text[at:begin], start + at, counts=depth > 0)
        at = end
        part = Item(start + begin, start + end, "text", text[begin:end], fixed=True)
        tag = _NAME.match(part.text) if kind == "tag" else None
        branches = message_branches(part.text) if depth < _DEEPEST else []
        if branches:
            done = 0
            for first, last in branches:
                yield _break(part, done, first)
                yield from _items(part.text[first:last], part.begin + first, depth + 1)
                done = last
            yield _break(part, done, len(part.text))
        elif tag is None:
            yield part
        elif part.text[1] == "/":
            yield Item(part.begin, part.end, "close", name=tag[1].lower())
        elif part.text[-2] == "/":
            yield Item(part.begin, part.end, "point", name=tag[1].lower())
        else:
            yield Item(part.begin, part.end, "open", part.text, name=tag[1].lower())
    yield from _plain(text[at:], start + at, counts=depth > 0)


def _plain(text: str, begin: int, *, counts: bool) -> Iterator[Item]:
    """Text without placeholders, but for the signs that stand for the number of a plural."""
    for piece in re.split(r"(#\w*)", text) if counts else [text]:
        if piece:
            yield Item(begin, begin + len(piece), "text", piece, fixed=counts and piece[0] == "#")
        begin += len(piece)


def _break(message: Item, begin: int, end: int) -> Item:
    """The text between the branches of a message."""
    return Item(message.begin + begin, message.begin + end, "text", "\n", name="message", fixed=True)


def _settled(item: Item, closed: Collection[str]) -> Item:
    """The item, as it is in a message in which such elements end."""
    name = item.name
    if name in _LONE_BREAKS or (name in closed and ENDS_P.fullmatch(name)):
        return item._replace(kind="text", text="\n", fixed=True)
    if item.kind != "open":
        return item
    if name in closed or (name in INLINE and name not in _POINTS):
        return item._replace(text="")
    if name in _POINTS:
        return item._replace(kind="point", text="")
    return item._replace(kind="text", fixed=True)
