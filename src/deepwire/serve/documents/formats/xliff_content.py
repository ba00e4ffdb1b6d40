"""The content of a segment of XLIFF: text, elements around text, and codes of another format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from deepwire.serve.documents.document import Marks, Pieces, Run, common, in_order
from deepwire.serve.documents.formats.inline_elements import Item, Kind
from deepwire.serve.documents.formats.placeholders import items_of
from deepwire.serve.documents.formats.xml_tree import in_one_line, local

_CODES = frozenset(["x", "bx", "ex", "ph", "it", "bpt", "ept", "ut", "sc", "ec", "cp", "sm", "em"])
"""Inside is code of another format."""
_PAIRS = {"bx": "ex", "bpt": "ept", "sc": "ec", "sm": "em"}
"""Codes that begin something, and those that end it."""
_REFERENCES = ("rid", "startRef", "id")
_ALL = -1
_DEEPEST, _MOST_PARTS = 30, 1000


class _Part(NamedTuple):
    """Text, or an element without text that may change.

    Attributes:
        text: What is there.
        marks: Numbers of the elements and pairs of codes that it is in.
        node: The code, a comment, or what is not to be translated, which may be several in their order; of a
            tag in the text its characters; None for text.
        is_placeholder: Whether a program fills this text in or reads it, or it is not to be translated.
        tag: The tag in the text.
    """

    text: str
    marks: Marks
    node: Any = None
    is_placeholder: bool = False
    tag: Item | None = None

    @property
    def is_fixed(self) -> bool:
        """Whether it stays as it is."""
        return self.is_placeholder or self.node is not None


class Markers:
    """Elements, and pairs of `sm` and `em`, that have begun and say whether the text in them is translated.

    Args:
        keeps_lines: Whether the ends of lines are those of the text.
    """

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self._stay: dict[Any, bool] = {}
        self.keeps_lines = keeps_lines

    def stay(self) -> bool:
        """Whether text stays, as what began last says."""
        return next(reversed(self._stay.values()), False)

    def begin(self, element: Any) -> None:
        """An element begins; an `em` ends what its `sm` began."""
        said, name, is_protected = (
            element.get("translate"),
            local(element),
            element.get("mtype") == "protected",
        )
        if name == "em":
            self._stay.pop(element.get("startRef"), None)
        elif said in ("yes", "no") or is_protected:
            self._stay[element.get("id") if name == "sm" else element] = said != "yes" or is_protected

    def end(self, element: Any) -> None:
        """An element ends; what an `sm` began goes on."""
        self._stay.pop(element, None)

    def pass_over(self, element: Any) -> None:
        """Take note of the markers in an element that is not translated."""
        for marker in element.iter("{*}sm", "{*}em"):
            self.begin(marker)


class SegmentContent:
    """The content of a source or target.

    Args:
        element: It.
        markers: What has begun in an earlier segment of the same unit; afterwards, in this one too.

    Attributes:
        runs: Its text. Elements may change their order where each code that begins something has its end.
    """

    def __init__(self, element: Any, markers: Markers | None = None) -> None:
        self._element = element
        self._elements: list[Any] = []
        self._codes: dict[int, tuple[Any, Any]] = {}
        parts = _with_placeholders(list(_parts(element, (), self._elements, markers or Markers())))
        parts = _with_protected_stretches(_with_named_pairs(parts))
        depth = max((len(part.marks) for part in parts), default=0)
        paired = self._paired(parts) if depth <= _DEEPEST and len(parts) <= _MOST_PARTS else None
        self._is_free = paired is not None
        self._parts = parts if paired is None else paired
        has_markup = any(part.marks or part.is_fixed for part in self._parts)
        outside: Marks = (_ALL,) if self._is_free and has_markup else ()
        self.runs: Sequence[Run] = [
            Run(part.text, part.is_fixed, (*outside, *part.marks) if self._is_free else ())
            for part in self._parts
        ]

    def put(self, pieces: Pieces) -> None:
        """Put a translation there; where nothing changed, all stays as it is written."""
        if list(pieces) == in_order(self.runs, [run.text for run in self.runs]):
            return
        element = self._element
        for child in list(element):
            element.remove(child)
        element.text = None
        writer = _Writer(element)
        marks: Marks = ()
        for piece in pieces:
            part = None if piece.run is None else self._parts[piece.run]
            following = piece.marks if self._is_free or part is None else part.marks
            following = tuple(mark for mark in following if mark != _ALL)
            self._change(writer, marks, following)
            marks = following
            writer.add(piece.text if part is None or part.node is None else part.node)
        self._change(writer, marks, ())
        writer.finish()

    def _change(self, writer: _Writer, marks: Marks, following: Marks) -> None:
        """End elements and begin others."""
        same = common(marks, following)
        for mark in reversed(marks[same:]):
            if mark in self._codes:
                writer.add(self._codes[mark][1])
            else:
                writer.end()
        for mark in following[same:]:
            if mark in self._codes:
                writer.add(self._codes[mark][0])
            else:
                writer.begin(self._elements[mark])

    def _paired(self, parts: Sequence[_Part]) -> list[_Part] | None:
        """With what stands between two codes in an element of its own; None where a code has no other."""
        paired: list[_Part] = []
        opened: list[tuple[int, _Part]] = []
        for part in parts:
            kind = _kind(part)
            if kind == "open":
                number = len(self._elements) + len(self._codes)
                self._codes[number] = part.node, None
                opened.append((number, part))
                paired.append(_Part("", _path(part.marks, opened)))
            elif kind == "close":
                number, begin = opened.pop() if opened else (-1, _Part("", ()))
                if begin.marks != part.marks or not _belong(begin, part):
                    return None
                self._codes[number] = begin.node, part.node
            else:
                paired.append(part._replace(marks=_path(part.marks, opened)))
        return None if opened else paired


_NAMED = re.compile(r"(START|CLOSE)_(\w+?)(?:_\d+)?|<(/?)([A-Za-z][^\s<>/]*)[^<>]*(?<!/)>")
"""A tag in an id, or in the code that a placeholder stands for."""


def _with_named_pairs(parts: Sequence[_Part]) -> list[_Part]:
    """With tags for the codes that only a name tells to be such, where both begin and end are there."""
    tags = [_named_tag(part.node) for part in parts]
    kinds = {(tag.kind, tag.name) for tag in tags if tag is not None}
    paired = {name for kind, name in kinds if kind == "open" and ("close", name) in kinds}
    return [
        part._replace(tag=tag) if tag is not None and tag.name in paired else part
        for part, tag in zip(parts, tags, strict=True)
    ]


def _named_tag(node: Any) -> Item | None:
    if isinstance(node, str | tuple | None) or local(node) not in ("x", "ph"):
        return None
    said = (node.get("id"), node.get("equiv"), node.get("equiv-text"), node.get("disp"), node.text)
    name = next(filter(None, map(_NAMED.fullmatch, filter(None, said))), None)
    if name is None:
        return None
    closes = name[1] == "CLOSE" or name[3] == "/"
    return Item(0, 0, "close" if closes else "open", name=name[2] or name[4].lower())


def _with_protected_stretches(parts: Sequence[_Part]) -> list[_Part]:
    """With two markers and what they protect as one, so that no other word comes between them."""
    joined: list[_Part] = []
    begin: int | None = None
    for part in parts:
        kind = _kind(part)
        joined.append(part)
        if kind == "open":
            protects = part.tag is None and part.node.get("translate") == "no"
            begin = len(joined) - 1 if protects else None
        elif begin is not None:
            if part.marks != joined[begin].marks or not (part.is_fixed or part.text.isspace()):
                begin = None
            elif kind == "close" and _belong(joined[begin], part):
                inside = joined[begin:]
                nodes = tuple(one.text if one.node is None else one.node for one in inside)
                joined[begin:] = [_Part("".join(one.text for one in inside), part.marks, nodes)]
                begin = None
    return joined


def _path(marks: Marks, opened: Sequence[tuple[int, _Part]]) -> Marks:
    """The elements and pairs of codes around something; a pair is in the elements that its codes are in."""
    path: list[int] = []
    for depth in range(len(marks) + 1):
        path += [number for number, part in opened if len(part.marks) == depth]
        path += marks[depth : depth + 1]
    return tuple(path)


def _kind(part: _Part) -> Kind:
    """Whether it begins or ends something that is no element."""
    if part.tag is not None:
        return part.tag.kind
    name = "" if part.node is None or isinstance(part.node, tuple) else local(part.node)
    return "open" if name in _PAIRS else "close" if name in _PAIRS.values() else "point"


def _belong(begin: _Part, end: _Part) -> bool:
    """Whether two codes, or two tags, belong together."""
    if begin.tag is not None and end.tag is not None:
        return begin.tag.name == end.tag.name
    if begin.tag is not end.tag or begin.node is None or local(end.node) != _PAIRS[local(begin.node)]:
        return False
    names = [{part.node.get(name) for name in _REFERENCES} - {None} for part in (begin, end)]
    return bool(names[0] & names[1])


def _with_placeholders(parts: Sequence[_Part]) -> list[_Part]:
    """With each text cut where placeholders are."""
    texts = [part for part in parts if not part.is_fixed]
    found = iter(items_of(*(part.text for part in texts)))
    cut: list[_Part] = []
    for part in parts:
        cut += [part] if part.is_fixed else [_part_of(item, part) for item in next(found)]
    return cut


def _part_of(item: Item, text: _Part) -> _Part:
    if item.name:
        return _Part(item.text, text.marks, text.text[item.begin : item.end], tag=item)
    return text._replace(text=item.text, is_placeholder=item.fixed)


def _parts(element: Any, marks: Marks, elements: list[Any], around: Markers) -> Iterator[_Part]:
    """The parts of an element; the elements with text in them are numbered in `elements`.

    Text stays where the innermost of those `around` it says so.
    """
    yield from _texts(element.text, marks, around)
    for child in element:
        name = local(child)
        text = "" if name in _CODES or not name else "".join(child.itertext())
        around.begin(child)
        if around.stay() and not any(map(_may_be_read, child.iterdescendants())):
            yield _Part(text, marks, child)
        elif text.strip():
            elements.append(child)
            yield from _parts(child, (*marks, len(elements) - 1), elements, around)
        else:
            yield _Part("", marks, child)
        around.end(child)
        yield from _texts(child.tail, marks, around)


def _may_be_read(element: Any) -> bool:
    """Whether it, or what follows it, may be translated within what stays."""
    return element.get("translate") == "yes" or local(element) == "em"


def _texts(text: str | None, marks: Marks, around: Markers) -> Iterator[_Part]:
    """Text between elements; the spaces around what stays are those of the sentence."""
    text = text or ""
    text = text if around.keeps_lines else in_one_line(text)
    core = text.strip() if around.stay() else ""
    before, _, behind = text.partition(core) if core else (text, "", "")
    for part, stays in ((before, False), (core, True), (behind, False)):
        if part:
            yield _Part(part, marks, is_placeholder=stays)


class _Writer:
    """Writes into an element.

    Args:
        element: It, without any content.
    """

    def __init__(self, element: Any) -> None:
        self._path, self._texts = [element], list[str]()

    def add(self, node: Any) -> None:
        """Text, or a copy of an element, without what stands behind it; or several of them."""
        if isinstance(node, tuple):
            for one in node:
                self.add(one)
            return
        if isinstance(node, str):
            self._texts.append(node)
            return
        self.finish()
        copy = deepcopy(node)
        copy.tail = None
        self._path[-1].append(copy)

    def begin(self, like: Any) -> None:
        """Begin an element with the name and attributes of another."""
        self.finish()
        parent = self._path[-1]
        self._path.append(parent.makeelement(like.tag, dict(like.attrib), nsmap=like.nsmap))
        parent.append(self._path[-1])

    def end(self) -> None:
        """End the element that began last."""
        self.finish()
        self._path.pop()

    def finish(self) -> None:
        """Write the text that was added: all at once, as each time it would be copied."""
        text, parent = "".join(self._texts), self._path[-1]
        self._texts.clear()
        last = next(parent.iterchildren(reversed=True), None)
        if text and last is not None:
            last.tail = text
        elif text:
            parent.text = text
