"""Parts of a message that a program fills in or reads stay: %s, {name}, ${x}, tags and addresses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from deepwire.data.text.placeholders import find_placeholders
from deepwire.documents.formats.hypertext import ENDS_P, INLINE, VOID
from deepwire.documents.formats.inline_elements import Item

_NAME = re.compile(r"</?([A-Za-z][^\s/<>]*)")
_LONE_BREAKS = frozenset(["br", "hr", "li", "p"])
"""Elements that part two texts also where nothing ends them."""
_POINTS = INLINE & VOID


def items_of(*texts: str) -> list[list[Item]]:
    """The text of a message, of which there may be several parts, with tags as markup.

    Placeholders but for numbers are fixed text. A tag in which nothing ends that it begins is fixed text
    too, such as `<file>`, unless HTML has an inline element of that name.
    """
    found = [list(_items(text)) for text in texts]
    closed = {item.name for items in found for item in items if item.kind == "close"}
    return [[_settled(item, closed) for item in items] for items in found]


def _items(text: str) -> Iterator[Item]:
    """All of a text; a tag that may begin an element still has its own text."""
    at = 0
    for begin, end, kind in find_placeholders(text):
        if kind == "number":
            continue
        if begin > at:
            yield Item(at, begin, "text", text[at:begin])
        at = end
        tag = _NAME.match(text, begin) if kind == "tag" else None
        if tag is None:
            yield Item(begin, end, "text", text[begin:end], fixed=True)
        elif text[begin + 1] == "/":
            yield Item(begin, end, "close", name=tag[1].lower())
        elif text[end - 2] == "/":
            yield Item(begin, end, "point", name=tag[1].lower())
        else:
            yield Item(begin, end, "open", text[begin:end], name=tag[1].lower())
    if at < len(text):
        yield Item(at, len(text), "text", text[at:])


def _settled(item: Item, closed: Collection[str]) -> Item:
    """What it is in a message in which there are ends of such elements."""
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
