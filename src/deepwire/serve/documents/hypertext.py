"""HTML, a whole page or a part of one: tags, attributes, comments and scripts stay byte for byte."""

from __future__ import annotations

import re
from typing import NamedTuple

from deepwire.serve.documents.document import Options
from deepwire.serve.documents.marked_text import Item, Kind, ReplacedText, block_of, decoded, unescaped
from deepwire.serve.documents.xml_source import escaped

INLINE = frozenset([
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em",
    "font", "i", "img", "ins", "kbd", "label", "mark", "nobr", "q", "rp", "rt", "ruby", "s", "samp",
    "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr"
])  # fmt: skip
_FIXED = frozenset(["code", "kbd", "samp", "var", "tt"])
_SKIPPED = frozenset(
    ["script", "style", "pre", "textarea", "svg", "math", "template", "noscript", "iframe", "object"]
)
VOID = frozenset([
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr"
])  # fmt: skip
ENDS_P = re.compile(
    r"address|article|aside|blockquote|body|center|d[dlt]|details|dialog|div|fieldset|fig(?:caption|ure)|footer|form"
    r"|h[1-6r]|header|hgroup|html|li|main|menu|nav|[ou]l|p|pre|search|section|summary|table|t[dhr]"
)
"""Elements at whose beginning or end a paragraph ends, which needs no tag for it."""


class HtmlDocument(ReplacedText):
    """A page.

    Args:
        source: All of it.
        in_ascii: Whether other characters are written as references.
    """

    def __init__(self, source: str, *, in_ascii: bool = False) -> None:
        blocks = [block_of(source, items) for items in _Reader(source).blocks()]
        super().__init__(source, blocks, _encoded_in_ascii if in_ascii else _encoded)


_SPACES = re.compile(r"[ \t\n\r\f]+")


def _encoded(text: str, raw: str) -> str:
    """Text as HTML; where it begins and ends with a space, with those of the source."""
    if not raw:
        return escaped(text)
    before, after = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
    core = escaped(text.strip(" "))
    if not core:
        return before if text else ""
    return f"{before if text[:1] == ' ' else ''}{core}{after if text[-1:] == ' ' else ''}"


def _encoded_in_ascii(text: str, raw: str) -> str:
    return _encoded(text, raw).encode("ascii", "xmlcharrefreplace").decode()


_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]{0,99})")
# A part of its attributes; `>` within quotes does not end it.
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^'"<>]+|<)""")
_ATTRIBUTE = re.compile(
    r"""(?<![^\s/"'])(translate|class)\s*=\s*("[^"]*"|'[^']*'|[^\s>"']+)""", re.IGNORECASE
)
_RAW = frozenset(["script", "style", "textarea", "title"])
"""Elements in which only their own end is a tag."""
_OTHER = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">"))


class _Tag(NamedTuple):
    """A tag of a page.

    Attributes:
        begin, end: Where it stands.
        closes: Whether it ends an element.
        name: Of the element, in small letters.
        attributes: What stands between the name and the end of the tag.
    """

    begin: int
    end: int
    closes: bool
    name: str
    attributes: str


class _Reader:
    """Finds the text between tags, in time that grows with the length of the page alone."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._blocks: list[list[Item]] = []
        self._block: list[Item] = []
        self._skipped: list[str] = []
        self._fixed: list[str] = []
        self._missing: set[str] = set()
        self._endless: set[int] = set()

    def blocks(self) -> list[list[Item]]:
        """The text of the whole page and the tags in it, block by block."""
        source, text, at = self._source, 0, 0
        while (at := source.find("<", at)) >= 0:
            end = self._other_end(at)
            if end is not None:
                self._add_text(text, at)
                self._add(Item(at, end, "point"))
                text = at = end
                continue
            tag = self._tag(at)
            if tag is None:  # a sign of the text
                at += 1
                continue
            self._add_text(text, at)
            self._pass(tag)
            text = at = tag.end
            if not tag.closes and tag.name in _RAW:
                at = self._raw_end(tag.name, at)
        self._add_text(text, len(source))
        self._end_block()
        return self._blocks

    def _tag(self, begin: int) -> _Tag | None:
        """The tag that begins here; None if none does, or if it has no end."""
        tag = _TAG.match(self._source, begin)
        if tag is None:
            return None
        at, tried = tag.end(), list[int]()
        while self._source[at : at + 1] != ">":
            tried.append(at)
            part = None if at in self._endless else _PART.match(self._source, at)
            if part is None:  # and nothing that comes by one of these places has an end
                self._endless.update(tried)
                return None
            at = part.end()
        return _Tag(begin, at + 1, bool(tag[1]), tag[2].lower(), self._source[tag.end() : at])

    def _pass(self, tag: _Tag) -> None:
        is_end = tag.closes and tag.name == "p"
        if self._skipped[-1:] == ["p"] and not is_end and ENDS_P.fullmatch(tag.name):
            self._skipped.pop()
        if tag.name not in INLINE:
            self._end_block()
        kind: Kind = "point"
        fixed = False
        if tag.closes:
            self._close(tag.name)
            kind = "close"
        elif tag.name not in VOID and not tag.attributes.endswith("/"):
            fixed = self._open(tag.name, tag.attributes)
            kind = "open"
        if tag.name in INLINE:
            self._add(Item(tag.begin, tag.end, kind, name=tag.name, fixed=fixed))

    def _find(self, wanted: str, start: int) -> int:
        """Where it comes next; what is not found once is not looked for again."""
        place = -1 if wanted in self._missing else self._source.find(wanted, start)
        if place < 0:
            self._missing.add(wanted)
        return place

    def _other_end(self, at: int) -> int | None:
        """The end of a comment, declaration or instruction; None if it is none, or has no end."""
        for begin, end in _OTHER:
            if self._source.startswith(begin, at):
                place = self._find(end, at + len(begin))
                return None if place < 0 else place + len(end)
        return None

    def _raw_end(self, name: str, at: int) -> int:
        """Where the tag stands that ends such an element."""
        key = f"</{name}"
        if key in self._missing:
            return len(self._source)
        end_tag = re.compile(key + r"(?=[\s/>])", re.IGNORECASE).search(self._source, at)
        if end_tag is None:
            self._missing.add(key)
            return len(self._source)
        return end_tag.start()

    def _open(self, tag: str, attributes: str) -> bool:
        """Begin an element; tells whether all that is in it stays as it is."""
        names = {key.lower(): value.strip("\"'") for key, value in _ATTRIBUTE.findall(attributes)}
        said, classes = names.get("translate", "").lower(), names.get("class", "")
        untouched = said == "no" or "notranslate" in classes.split()
        if self._skipped:
            self._skipped += [tag] * (tag == self._skipped[-1])
        elif tag in _SKIPPED or (untouched and tag not in INLINE):
            self._skipped.append(tag)
        elif self._fixed:
            if tag == self._fixed[-1]:
                self._fixed.append(tag)
        elif tag in _FIXED or untouched:
            self._fixed.append(tag)
            return True
        return False

    def _close(self, tag: str) -> None:
        if self._skipped and self._skipped[-1] == tag:
            self._skipped.pop()
        if self._fixed and self._fixed[-1] == tag:
            self._fixed.pop()

    def _add_text(self, begin: int, end: int) -> None:
        if end > begin:
            text = _SPACES.sub(" ", unescaped(self._source[begin:end]))
            self._add(Item(begin, end, "text", text, fixed=bool(self._fixed)))

    def _add(self, item: Item) -> None:
        if not self._skipped:
            self._block.append(item)

    def _end_block(self) -> None:
        texts = (item for item in self._block if item.kind == "text")
        if any(not self._source[item.begin : item.end].isspace() for item in texts):
            self._blocks.append(self._block)
        self._block = []


_CHARSET = re.compile(r"<(?:meta|\?xml)\b[^>]*?\b(?:charset|encoding)\s*=[\s\"']*([\w-]+)", re.IGNORECASE)
_HEAD = 1024
"""How much of a page browsers look at for it."""


def read_html(content: bytes, options: Options) -> HtmlDocument:  # noqa: ARG001 - as all readers
    """Read a page.

    Raises:
        DataError: It is not UTF-8.
    """
    source = decoded(content)
    charset = _CHARSET.search(source, 0, _HEAD)
    # What has been ASCII so far is read as what the page says that it is.
    in_ascii = charset is not None and charset[1].lower() not in ("utf-8", "utf8")
    return HtmlDocument(source, in_ascii=in_ascii)
