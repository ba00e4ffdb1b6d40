"""Markdown: headings, lists, tables, links, code and HTML stay; the text of paragraphs is translated.

The lines of a paragraph become one line, as its sentences go across them; line breaks that are meant stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from deepwire.documents.document import Options
from deepwire.documents.file_text import decoded
from deepwire.documents.formats.inline_elements import Item, Kind, block_of
from deepwire.documents.formats.replaced_text import Block, ReplacedText
from deepwire.errors import DataError

_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n.*?\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
# Markup within a line. The text of a link or image is text; what `code`, `url` and `math` match is a word of
# the sentence that stays.
_INLINE = re.compile(
    r"(?P<word>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
    r"|<[A-Za-z][A-Za-z0-9+.-]*:[^<>\s]*>|https?://[^\s<>)\]]+"
    r"|\$[^$\s](?:[^$\n]*[^$\s])?\$)"
    r"|(?P<tag></?(?P<name>[A-Za-z][^\s/<>]*)[^<>]*>)"
    r"|(?P<point><!--.*?-->|\[\^[^\]\s]+\]|\\.|&\w+;)"
    r"|(?P<close>\]\((?:[^()\n]|\([^()\n]*\))*\)|\]\[[^\]\n]*\]|\])|(?P<open>!?\[)"
    r"|(?P<emphasis>\*+|~~|(?<!\w)_+|_+(?!\w))"
)
_VOID = frozenset(["area", "br", "col", "embed", "hr", "img", "input", "link", "source", "track", "wbr"])
_MAX_INLINE = 100_000
"""Characters of a paragraph; what is longer stays as it is."""


def read_markdown(content: bytes, options: Options) -> ReplacedText:  # noqa: ARG001 - as all readers
    """Read a page.

    Raises:
        DataError: It is not UTF-8, or nested too deeply.
    """
    from markdown_it import MarkdownIt

    source = decoded(content)
    front = _FRONT_MATTER.match(source)
    start = front.end() if front else 0
    try:
        parsed = (
            MarkdownIt("commonmark")
            .enable(["table", "strikethrough"])
            .disable("inline")
            .parse(source[start:])
        )
    except RecursionError:
        raise DataError("nested too deeply") from None
    starts = [
        start,
        *(start + match.end() for match in re.finditer(r"\r\n|\n|\r", source[start:])),
        len(source),
    ]
    blocks: list[Block] = []
    at = start
    for token in parsed:
        if token.type != "inline" or token.map is None or len(token.content) > _MAX_INLINE:
            continue
        begin, end = starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)]
        lines = _places(source, max(begin, at), end, token.content.split("\n"))
        if lines:
            blocks.append(block_of(source, _joined(_items(source, lines))))
            at = lines[-1][1]
    return ReplacedText(source, blocks)


def _places(source: str, begin: int, end: int, lines: list[str]) -> list[tuple[int, int]]:
    """Where the lines of a paragraph stand in the file, without what stands before them (`> `, spaces).

    Nothing if one is not found, because it was written otherwise: then the paragraph stays.
    """
    places = []
    for line in lines:
        text = line.strip()
        place = source.find(text, begin, end)
        if place < 0:
            return []
        places.append((place, place + len(text)))
        begin = place + len(text)
    return places


def _items(source: str, lines: list[tuple[int, int]]) -> Iterator[Item]:
    """What a paragraph consists of; a line break is a space, or stays where it is meant."""
    opened: list[str] = []
    for number, (begin, end) in enumerate(lines):
        yield from _line_items(source, begin, end, opened)
        if number + 1 < len(lines):
            following = lines[number + 1][0]
            meant = source[end : end + 2] == "  " or source[end - 1] == "\\"
            yield Item(end, following, "text", "\n" if meant else " ", fixed=meant)


def _joined(items: Iterator[Item]) -> list[Item]:
    """The same with one item for neighbours that are both text."""
    joined: list[Item] = []
    for item in items:
        if joined and all(
            neighbour.kind == "text" and not neighbour.fixed for neighbour in (joined[-1], item)
        ):
            before = joined.pop()
            item = before._replace(end=item.end, text=before.text + item.text)
        joined.append(item)
    return joined


def _line_items(source: str, begin: int, end: int, opened: list[str]) -> Iterator[Item]:
    """What is in a line; `opened` are the names of the elements that have begun in the paragraph."""
    at = begin
    for match in _INLINE.finditer(source, begin, end):
        if match.start() > at:
            yield Item(at, match.start(), "text", source[at : match.start()])
        yield _item(source, match, end, opened)
        at = match.end()
    if at < end:
        yield Item(at, end, "text", source[at:end])


def _item(source: str, match: re.Match[str], end: int, opened: list[str]) -> Item:
    begin, stop = match.span()
    if match["word"]:
        return Item(begin, stop, "text", match[0].strip("`<>"), fixed=True)
    kind: Kind = "point"
    name = ""
    if match["open"] or match["close"]:
        kind, name = "open" if match["open"] else "close", "]"
    elif match["tag"]:
        name = match["name"].lower()
        if name not in _VOID and not match[0].endswith("/>"):
            kind = "close" if match[0].startswith("</") else "open"
    elif match["emphasis"]:
        name = match[0]
        spaced = source[begin - 1 : begin].isspace(), stop == end or source[stop].isspace()
        if not spaced[0] and name in opened:
            kind = "close"
        elif not spaced[1]:
            kind = "open"
        else:
            return Item(begin, stop, "text", name)
    if kind == "open":
        opened.append(name)
    elif kind == "close" and name in opened:
        opened.remove(name)
    return Item(begin, stop, kind, name=name)
