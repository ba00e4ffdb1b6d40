"""XLIFF 1.2 and 2: segments without a translation get one, with the inline elements of the source."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence

from deepwire.data.text.language_guess import language_code
from deepwire.errors import DataError
from deepwire.serve.documents.document import Options, Pieces, Run
from deepwire.serve.documents.marked_text import Change, Item, Kind, ReplacedText, block_of, replaced
from deepwire.serve.documents.placeholders import items_of
from deepwire.serve.documents.xml_source import TEXT, Node, XmlFile, escaped, in_one_line, read_xml

_CODES = frozenset(["x", "bx", "ex", "ph", "it", "bpt", "ept", "ut", "sc", "ec", "cp", "sm", "em"])
"""Inside is code of another format."""
_PAIRS = {"bx": "ex", "bpt": "ept", "sc": "ec", "sm": "em"}
"""Codes that begin something, and those that end it."""
_CHARACTER = re.compile(r"&[^;]*;|.", re.DOTALL)
_REFERENCES = ("rid", "startRef", "id")
_NAMED = re.compile(r"(START|CLOSE)_(\w+?)(?:_\d+)?|<(/?)([A-Za-z][^\s<>/]*)[^<>]*(?<!/)>")
"""A tag in an id, or in the code that a placeholder stands for."""
_TAG = "tag "
"""The beginning of the names of codes that only a name tells to be tags, if there are both."""
_TO_REVIEW = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}


class _Segment:
    """A segment that gets a translation; its source may be in parts."""

    def __init__(self, xml: XmlFile, node: Node, source: Node) -> None:
        self._xml, self.node, self._source = xml, node, source
        keeps_lines = _innermost(source, "xml:space") == "preserve"
        self._old = _child(node, "target")
        self._parts, self._done = _parts(source), _parts(self._old)
        self._open = _open_parts(xml, node, source)
        self.texts: list[ReplacedText] = []
        """A text for each part without a translation."""
        for mid in self._open:
            items = _items(xml, self._parts.get(mid, source), keeps_lines=keeps_lines)
            block = block_of(xml.source, items, trimmed=False)
            self.texts.append(ReplacedText(xml.source, [block], escaped))

    def changes(self, translations: Iterator[Pieces], state: Mapping[str, str]) -> Iterator[Change]:
        """The new target, with further attributes."""
        inside = [
            change for text in self.texts for change in text.changes([next(translations) for _ in text.units])
        ]
        source, old = self._source, self._old
        content = self._content(inside)
        attributes = {
            name: value for name, value in source.raw_attributes().items() if not name.endswith(":lang")
        }
        attributes |= {} if old is None else old.raw_attributes()
        attributes |= {name: f'"{value}"' for name, value in state.items()}
        tag = source.tag[: -len(source.name)] + "target"
        said = "".join(f" {name}={value}" for name, value in attributes.items())
        target = f"<{tag}{said}>{content}</{tag}>"
        if old is not None:
            yield old.begin, old.end, target
            return
        before = [child for child in self.node.elements if child.name in ("source", "seg-source")][-1]
        space = re.compile(r"\s*(?=<)").match(self._xml.source, before.end)
        yield before.end, before.end, f"{space[0] if space else ''}{target}"

    def _content(self, changes: Sequence[Change]) -> str:
        """The content of the target; `changes` are those of the source."""

        def translated(begin: int, end: int) -> str:
            inside = [change for change in changes if begin <= change[0] < end]
            return replaced(self._xml.source, inside, begin, end)

        if self._old is None or not (self._done and self._parts):
            return translated(self._source.inner, self._source.inner_end)
        filled: list[Change] = []
        place, is_first = self._old.inner, True
        for mid, part in self._parts.items():
            done, new = self._done.get(mid), translated(part.begin, part.end)
            if done is not None:
                place, is_first = done.end, False
                if mid in self._open:
                    filled.append((done.begin, done.end, new))
            elif is_first:
                filled.append((place, place, new + self._text_beside(part, 1)))
            else:
                filled.append((place, place, self._text_beside(part, -1) + new))
        return replaced(self._xml.source, filled, self._old.inner, self._old.inner_end)

    def _text_beside(self, part: Node, step: int) -> str:
        """The text before or behind a part of the source, as it is written."""
        assert part.parent is not None
        siblings = [None, *part.parent.children, None]
        beside = siblings[siblings.index(part) + step]
        return self._xml.raw(beside) if beside is not None and beside.name == TEXT else ""


class XliffDocument:
    """A file; a segment that has a translation keeps it.

    Args:
        content: All of it.
        options: The language to translate into is written into the file if it has none.

    Raises:
        DataError: It is no XLIFF, damaged, too large, or of another source or target language.
    """

    def __init__(self, content: bytes, options: Options) -> None:
        self._options = options
        (self._xml,) = read_xml({"the file": content}).values()
        root = self._xml.root
        if root.name != "xliff":
            raise DataError(f"not XLIFF: the file begins with <{root.name}>")
        self._files = [root, *(element for element in root.walk() if element.name == "file")]
        for element in self._files:
            _require_language(element, "source", ("source-language", "srcLang"), options.source)
            _require_language(element, "target", ("target-language", "trgLang"), options.target)
        self._is_2 = (root.get("version") or "1.2").startswith("2")
        self._segments = list(_segments(self._xml, self._is_2))
        texts = (text for segment in self._segments for text in segment.texts)
        self.units: Sequence[Sequence[Run]] = [unit for text in texts for unit in text.units]

    def render(self, translations: Sequence[Pieces]) -> bytes:
        """The file with more targets."""
        return self._xml.encoded(replaced(self._xml.source, self._changes(iter(translations))))

    def _changes(self, translations: Iterator[Pieces]) -> Iterator[Change]:
        state = {} if self._is_2 else _TO_REVIEW
        for segment in self._segments:
            yield from segment.changes(translations, state)
            if self._is_2:  # the finer state was that before
                yield _with_attributes(segment.node, {"state": "translated"}, without="subState")
        wanted = self._options.target.replace("_", "-")
        attribute = "trgLang" if self._is_2 else "target-language"
        for element in self._files[:1] if self._is_2 else self._files[1:]:
            if wanted and element.get(attribute) is None:
                yield _with_attributes(element, {attribute: wanted})


def _with_attributes(element: Node, attributes: Mapping[str, str], without: str = "") -> Change:
    """The tag that begins an element, with other attributes; the others stay as they are written."""
    text = element.attributes
    for name in (without, *attributes):
        text = re.sub(rf"\s+{name}\s*=\s*(\"[^\"]*\"|'[^']*')", "", text) if name else text
    text = text.rstrip() + "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
    begin = element.begin + len("<") + len(element.tag)
    return begin, begin + len(element.attributes), text


def _require_language(element: Node, side: str, attributes: Sequence[str], wanted: str) -> None:
    """Checks that a file is in a language, or into it, if it says which."""
    named = next(filter(None, map(element.get, attributes)), "")
    if named and wanted and language_code(named) != language_code(wanted):
        raise DataError(f"its {side} language is {named}, not {wanted}")


def _segments(xml: XmlFile, is_2: bool) -> Iterator[_Segment]:
    for node in xml.root.walk():
        if node.name != ("segment" if is_2 else "trans-unit") or _innermost(node, "translate") == "no":
            continue
        source = _child(node, "source") if is_2 else _child(node, "seg-source", "source")
        if source is not None and _open_parts(xml, node, source):
            yield _Segment(xml, node, source)


def _child(element: Node, *names: str) -> Node | None:
    """The first child of the first of some names that there is."""
    found = (child for name in names for child in element.elements if child.name == name)
    return next(found, None)


def _innermost(element: Node, attribute: str) -> str:
    """An attribute of an element, or of the nearest one around it that has it."""
    values = (one.get(attribute) for one in (element, *element.ancestors()))
    return next(filter(None, values), "")


def _parts(element: Node | None) -> dict[str, Node]:
    """The segments that a source or target of XLIFF 1.2 is cut into, by their ids; perhaps none."""
    inside = () if element is None else element.walk()
    marked = [one for one in inside if one.name == "mrk" and one.get("mtype") == "seg"]
    return {part.get("mid") or f"part {number}": part for number, part in enumerate(marked)}


def _open_parts(xml: XmlFile, segment: Node, source: Node) -> list[str]:
    """The ids of the parts without a translation; "" for a source that is one."""

    def is_empty(element: Node | None) -> bool:
        return element is None or not xml.text(element).strip()

    target = _child(segment, "target")
    done = _parts(target)
    if not done and not is_empty(target):
        return []
    parts = _parts(source) or {"": source}
    return [mid for mid, part in parts.items() if not is_empty(part) and is_empty(done.get(mid))]


def _items(xml: XmlFile, element: Node, *, keeps_lines: bool) -> list[Item]:
    """The content of a source: text, elements around text, and codes of another format."""
    items = list(_raw_items(xml, element))
    kinds = {(item.kind, item.name) for item in items}
    paired = {name for kind, name in kinds if kind == "open" and ("close", name) in kinds}
    items = [
        item._replace(kind="point") if item.name.startswith(_TAG) and item.name not in paired else item
        for item in items
    ]
    return _with_placeholders(xml, items, keeps_lines=keeps_lines)


def _raw_items(xml: XmlFile, element: Node) -> Iterator[Item]:
    """The text of an element; within another one it may stay as it is."""
    for child in element.children:
        text = "" if child.name in _CODES else xml.text(child)
        if child.name == TEXT:
            yield Item(child.begin, child.end, "text", text)
        elif not text.strip():
            kind, name = _kind(xml, child)
            yield Item(child.begin, child.end, kind, name=name)
        elif child.get("translate") == "no" or child.get("mtype") == "protected":
            yield Item(child.begin, child.end, "text", in_one_line(text), fixed=True)
        else:
            name = f"{child.tag} {child.begin}"
            yield Item(child.begin, child.inner, "open", name=name)
            yield from _raw_items(xml, child)
            yield Item(child.inner_end, child.end, "close", name=name)


def _kind(xml: XmlFile, node: Node) -> tuple[Kind, str]:
    """Whether a code begins or ends something, and the name that both ends of it have."""
    for begin, end in _PAIRS.items():
        if node.name in (begin, end):
            reference = next(filter(None, map(node.get, _REFERENCES)), "")
            return ("open" if node.name == begin else "close"), f"{begin} {reference}"
    if node.name in ("x", "ph"):
        said = (node.get("id"), node.get("equiv"), node.get("equiv-text"), node.get("disp"), xml.text(node))
        named = next(filter(None, map(_NAMED.fullmatch, filter(None, said))), None)
        if named is not None:
            closes = named[1] == "CLOSE" or named[3] == "/"
            return ("close" if closes else "open"), f"{_TAG}{named[2] or named[4].lower()}"
    return "point", ""


def _with_placeholders(xml: XmlFile, items: Sequence[Item], *, keeps_lines: bool) -> list[Item]:
    """With each text cut where placeholders and tags are."""
    is_text = [item.kind == "text" and not item.fixed for item in items]
    found = iter(items_of(*(item.text for item, cut in zip(items, is_text, strict=True) if cut)))
    parts: list[Item] = []
    for item, cut in zip(items, is_text, strict=True):
        if not cut:
            parts.append(item)
            continue
        raw = xml.source[item.begin : item.end]
        places = [*(match.start() for match in _CHARACTER.finditer(raw)), len(raw)]
        for part in next(found):
            text = part.text if part.fixed or keeps_lines else in_one_line(part.text)
            begin, end = (item.begin + places[at] for at in part[:2])
            parts.append(part._replace(begin=begin, end=end, text=text))
    return parts
