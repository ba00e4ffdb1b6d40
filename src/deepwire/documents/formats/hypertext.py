"""HTML, a whole page or a part of one: tags, attributes, comments and scripts stay byte for byte."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
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
        reader = _Reader(source)
        reader.feed(source)
        reader.close()
        blocks = [
            [
                Stretch(begin, end, Run(_SPACES.sub(" ", html.unescape(source[begin:end])), fixed))
                for begin, end, fixed in block
            ]
            for block in reader.finished()
        ]
        super().__init__(source, blocks, _encoded)


def _encoded(text: str, raw: str) -> str:
    """Text as HTML; where it begins and ends with a space, with those of the source."""
    before, after = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
    core = html.escape(text.strip(" "), quote=False)
    if not core:
        return before if text else ""
    return f"{before if text[:1] == ' ' else ''}{core}{after if text[-1:] == ' ' else ''}"


class _Reader(HTMLParser):
    """Finds the text between tags by its place."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self._lines = [0]
        self._lines += [match.end() for match in re.finditer("\n", source)]
        self._length = len(source)
        self._blocks: list[list[_Piece]] = []
        self._block: list[_Piece] = []
        self._text: int | None = None
        self._skipped: list[str] = []
        self._fixed: list[str] = []

    def finished(self) -> list[list[_Piece]]:
        """The blocks; call it once, after the whole page was fed."""
        self._end_text(self._length)
        self._end_block()
        return self._blocks

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag opens."""
        self._end_text(self._place())
        if tag not in _INLINE:
            self._end_block()
        if tag in _VOID:
            return
        names = dict(attrs)
        untouched = names.get("translate") == "no" or "notranslate" in (names.get("class") or "").split()
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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """A tag that closes itself: it holds nothing."""
        self._end_text(self._place())
        if tag not in _INLINE:
            self._end_block()

    def handle_endtag(self, tag: str) -> None:
        """A tag closes."""
        self._end_text(self._place())
        for opened in (self._skipped, self._fixed):
            if opened and opened[-1] == tag:
                opened.pop()
        if tag not in _INLINE:
            self._end_block()

    def handle_data(self, data: str) -> None:  # noqa: ARG002 - its place is enough
        """Text."""
        self._begin_text()

    def handle_entityref(self, name: str) -> None:  # noqa: ARG002
        """A character such as &auml;"""
        self._begin_text()

    def handle_charref(self, name: str) -> None:  # noqa: ARG002
        """A character by its number."""
        self._begin_text()

    def handle_comment(self, data: str) -> None:  # noqa: ARG002
        """A comment."""
        self._end_text(self._place())

    def handle_decl(self, decl: str) -> None:  # noqa: ARG002
        """A declaration."""
        self._end_text(self._place())

    def handle_pi(self, data: str) -> None:  # noqa: ARG002
        """A processing instruction."""
        self._end_text(self._place())

    def unknown_decl(self, data: str) -> None:  # noqa: ARG002
        """A marked section."""
        self._end_text(self._place())

    def _place(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def _begin_text(self) -> None:
        if self._text is None:
            self._text = self._place()

    def _end_text(self, end: int) -> None:
        hidden = self._skipped and self._skipped[-1] not in _READ
        if self._text is not None and not hidden and end > self._text:
            self._block.append(_Piece(self._text, end, bool(self._fixed)))
        self._text = None

    def _end_block(self) -> None:
        if self._block:
            self._blocks.append(self._block)
            self._block = []


def read_html(content: bytes, options: Options) -> HtmlDocument:  # noqa: ARG001 - as all readers
    """Read a page.

    Raises:
        DataError: It is not UTF-8.
    """
    return HtmlDocument(decoded(content))
