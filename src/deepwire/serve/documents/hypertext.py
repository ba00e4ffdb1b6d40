"""HTML, a whole page or a part of one: tags, attributes, comments and scripts stay byte for byte."""

from __future__ import annotations

import re
from functools import partial

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


def html_text(source: str, *, in_ascii: bool = False) -> ReplacedText:
    """A page; with `in_ascii` other characters are written as references."""
    blocks = [block_of(source, items) for items in _Reader(source).blocks()]
    return ReplacedText(source, blocks, partial(_encoded, in_ascii=in_ascii))


_SPACES = re.compile(r"[ \t\n\r\f]+")


def _encoded(text: str, raw: str, *, in_ascii: bool) -> str:
    """Text as HTML; where it begins and ends with a space, with those of the source."""
    before, after = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
    core = escaped(text.strip(" ") if raw else text)
    if in_ascii:
        core = core.encode("ascii", "xmlcharrefreplace").decode()
    if not core:
        return before if text else ""
    return f"{before if text[:1] == ' ' else ''}{core}{after if text[-1:] == ' ' else ''}"


_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]{0,99})")
# A part of its attributes; `>` within quotes does not end it.
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^'"<>]+|<)""")
_ATTRIBUTE = re.compile(
    r"""(?<![^\s/"'])(translate|class)\s*=\s*("[^"]*"|'[^']*'|[^\s>"']+)""", re.IGNORECASE
)
_RAW = frozenset(["script", "style", "textarea", "title"])
"""Elements in which only their own end is a tag."""
_OTHER = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">"))


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
            tag = _TAG.match(source, at)
            end = None if tag is None else self._tag_end(tag.end())
            if tag is None or end is None:  # a sign of the text
                at += 1
                continue
            self._add_text(text, at)
            name = tag[2].lower()
            self._pass(at, end, name, source[tag.end() : end - 1], closes=bool(tag[1]))
            text = at = end
            if not tag[1] and name in _RAW:
                found = self._find(rf"</{name}(?=[\s/>])", at)
                at = len(source) if found is None else found.start()
        self._add_text(text, len(source))
        self._end_block()
        return self._blocks

    def _tag_end(self, at: int) -> int | None:
        """The end of a tag whose attributes begin here; None if it has none."""
        tried = list[int]()
        while self._source[at : at + 1] != ">":
            tried.append(at)
            part = None if at in self._endless else _PART.match(self._source, at)
            if part is None:  # and nothing that comes by one of these places has an end
                self._endless.update(tried)
                return None
            at = part.end()
        return at + 1

    def _pass(self, begin: int, end: int, name: str, attributes: str, *, closes: bool) -> None:
        is_end = closes and name == "p"
        if self._skipped[-1:] == ["p"] and not is_end and ENDS_P.fullmatch(name):
            self._skipped.pop()
        if name not in INLINE:
            self._end_block()
        kind: Kind = "point"
        fixed = False
        if closes:
            kind = "close"
            for opened in (self._skipped, self._fixed):
                if opened[-1:] == [name]:
                    opened.pop()
        elif name not in VOID and not attributes.endswith("/"):
            fixed = self._open(name, attributes)
            kind = "open"
        if name in INLINE:
            self._add(Item(begin, end, kind, name=name, fixed=fixed))

    def _find(self, wanted: str, start: int) -> re.Match[str] | None:
        """Where a pattern comes next; what is not found once is not looked for again."""
        if wanted in self._missing:
            return None
        found = re.compile(wanted, re.IGNORECASE).search(self._source, start)
        if found is None:
            self._missing.add(wanted)
        return found

    def _other_end(self, at: int) -> int | None:
        """The end of a comment, declaration or instruction; None if it is none, or has no end."""
        for begin, end in _OTHER:
            if self._source.startswith(begin, at):
                found = self._find(re.escape(end), at + len(begin))
                return None if found is None else found.end()
        return None

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


def read_html(content: bytes, options: Options) -> ReplacedText:  # noqa: ARG001 - as all readers
    """Read a page.

    Raises:
        DataError: It is not UTF-8.
    """
    source = decoded(content)
    charset = _CHARSET.search(source, 0, _HEAD)
    # What has been ASCII so far is read as what the page says that it is.
    in_ascii = charset is not None and charset[1].lower() not in ("utf-8", "utf8")
    return html_text(source, in_ascii=in_ascii)
