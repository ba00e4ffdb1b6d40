"""HTML, a whole page or a part of one: tags, attributes, comments and scripts stay byte for byte."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from deepwire.documents.document import Options, Run
from deepwire.documents.file_text import decoded
from deepwire.documents.formats.replaced_text import ReplacedText, Stretch

_INLINE = frozenset(
    [
        "a",
        "abbr",
        "acronym",
        "b",
        "bdi",
        "bdo",
        "big",
        "cite",
        "code",
        "data",
        "del",
        "dfn",
        "em",
        "font",
        "i",
        "ins",
        "kbd",
        "label",
        "mark",
        "nobr",
        "q",
        "rp",
        "rt",
        "ruby",
        "s",
        "samp",
        "small",
        "span",
        "strike",
        "strong",
        "sub",
        "sup",
        "time",
        "tt",
        "u",
        "var",
        "wbr",
    ]
)
_FIXED = frozenset(["code", "kbd", "samp", "var", "tt"])
_SKIPPED = frozenset(
    ["script", "style", "pre", "textarea", "svg", "math", "template", "noscript", "iframe", "object", "head"]
)
_VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ]
)
_READ = frozenset(("title",))
"""Text inside of something that is skipped."""
_SPACES = re.compile(r"[ \t\n\r\f]+")


class _Piece(NamedTuple):
    """Text between two tags: where it stands, and whether it is translated."""

    begin: int
    end: int
    fixed: bool


class HtmlDocument(ReplacedText):
    """A page.

    Args:
        source: All of it.
    """

    def __init__(self, source: str) -> None:
        blocks = [
            [
                Stretch(begin, end, Run(_SPACES.sub(" ", html.unescape(source[begin:end])), fixed))
                for begin, end, fixed in block
            ]
            for block in _Reader(source).blocks()
        ]
        super().__init__(source, blocks, _encoded)


def _encoded(text: str, raw: str) -> str:
    """Text as HTML; where it begins and ends with a space, with those of the source."""
    before, after = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
    core = html.escape(text.strip(" "), quote=False)
    if not core:
        return before if text else ""
    return f"{before if text[:1] == ' ' else ''}{core}{after if text[-1:] == ' ' else ''}"


# A tag with its attributes; `>` within quotes does not end it.
_TAG = re.compile(r"""<(/?)([A-Za-z][^\s/>]*)((?:"[^"]*"|'[^']*'|[^'">])*)>""")
_ATTRIBUTE = re.compile(r"""\b(translate|class)\s*=\s*("[^"]*"|'[^']*'|[^\s>"']+)""", re.IGNORECASE)
_RAW = frozenset(["script", "style", "textarea", "title"])
"""Elements in which only their own end is a tag."""
_OTHER = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">"))


class _Reader:
    """Finds the text between tags, in time that grows with the length of the page alone."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._blocks: list[list[_Piece]] = []
        self._block: list[_Piece] = []
        self._skipped: list[str] = []
        self._fixed: list[str] = []
        self._missing: set[str] = set()

    def blocks(self) -> list[list[_Piece]]:
        """The text of the whole page, block by block."""
        source, text, at = self._source, 0, 0
        while (at := source.find("<", at)) >= 0:
            end = self._other_end(at)
            if end is not None:
                self._add_text(text, at)
                text = at = end
                continue
            tag = None if self._find(">", at) < 0 else _TAG.match(source, at)
            if tag is None:  # a sign of the text
                at += 1
                continue
            self._add_text(text, at)
            name = tag[2].lower()
            if name not in _INLINE:
                self._end_block()
            if tag[1]:
                self._close(name)
            elif name not in _VOID and not tag[3].endswith("/"):
                self._open(name, tag[3])
            text = at = tag.end()
            if not tag[1] and name in _RAW:
                at = self._raw_end(name, at)
        self._add_text(text, len(source))
        self._end_block()
        return self._blocks

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
        found = re.compile(key + r"(?=[\s/>])", re.IGNORECASE).search(self._source, at)
        if found is None:
            self._missing.add(key)
            return len(self._source)
        return found.start()

    def _open(self, tag: str, attributes: str) -> None:
        names = {key.lower(): value.strip("\"'") for key, value in _ATTRIBUTE.findall(attributes)}
        untouched = names.get("translate") == "no" or "notranslate" in names.get("class", "").split()
        if self._skipped:
            if tag == self._skipped[-1] or tag in _READ:
                self._skipped.append(tag)
        elif tag in _SKIPPED or (untouched and tag not in _INLINE):
            self._skipped.append(tag)
        elif self._fixed:
            if tag == self._fixed[-1]:
                self._fixed.append(tag)
        elif tag in _FIXED or untouched:
            self._fixed.append(tag)

    def _close(self, tag: str) -> None:
        for opened in (self._skipped, self._fixed):
            if opened and opened[-1] == tag:
                opened.pop()

    def _add_text(self, begin: int, end: int) -> None:
        hidden = self._skipped and self._skipped[-1] not in _READ
        if end > begin and not hidden:
            self._block.append(_Piece(begin, end, bool(self._fixed)))

    def _end_block(self) -> None:
        if any(not self._source[begin:end].isspace() for begin, end, _ in self._block):
            self._blocks.append(self._block)
        self._block = []


def read_html(content: bytes, options: Options) -> HtmlDocument:  # noqa: ARG001 - as all readers
    """Read a page.

    Raises:
        DataError: It is not UTF-8.
    """
    return HtmlDocument(decoded(content))
