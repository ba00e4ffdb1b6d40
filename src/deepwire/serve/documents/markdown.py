"""Markdown: headings, lists, tables, links, code and HTML stay; the text of paragraphs is translated.

The lines of a paragraph become one line, as its sentences go across them; line breaks that are meant stay.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any

from deepwire.errors import DataError
from deepwire.serve.documents.document import Options
from deepwire.serve.documents.marked_text import Item, Kind, ReplacedText, block_of, decoded

_FRONT_MATTER = re.compile(
    r"\ufeff?(---|\+\+\+)[ \t]*\r?\n(?:.*?\r?\n)??(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL
)
# On lines of its own; for CommonMark it would be a list where a line begins with a minus.
_FORMULA = re.compile(r"^[ \t>]*\$\$(?:(?!\n[ \t]*\r?\n)[^$])*\$\$[ \t]*\r?$", re.MULTILINE)
# Markup within a line. The text of a link or image is text; what `ticks` begin, and `word`, is a word of the
# sentence that stays. What is repeated has a bound, or is not tried again with less of it (`++`): time grows
# with the length alone.
_INLINE = re.compile(
    r"(?P<ticks>`++)|(?P<comment><!--)"
    r"|(?P<word><[A-Za-z][A-Za-z0-9+.-]*:[^<>\s]*>|https?://[^\s<>)\]]+"
    r"|\$\$[^$\n]+\$\$|\$[^$\s](?:[^$\n]*[^$\s])?\$|\{\{[^{}\n]*\}\}|\{%[^%\n]*%\})"
    r"|(?P<tag></?(?P<name>[A-Za-z][^\s/<>]*+)[^<>]*+>)"
    r"|(?P<point>\[\^[^\[\]\s]++\]|\\.|&#?\w+;|\{[#.:][^{}\n]*\})"
    r"|(?P<close>\]\((?:[^()\n]|\([^()\n]*\))*\)|\]\[[^\]\n]*\]|\])|(?P<open>!?\[)"
    r"|(?P<emphasis>\*+|~~|(?<!\w)_++|_++(?!\w))|(?P<sign>_++)"
)
# What a line of a paragraph may begin with: the name of a footnote, the sign of a definition; the first one a
# box or a kind of quote.
_BEGIN = re.compile(r"(?P<note>\[\^[^\[\]\s]++\]:|:(?=[ \t]))|\[[ xX]\](?!\S)|(?P<kind>\[!\w+\][+-]?)(?!\S)")
# Lines that begin or end a box, of several kinds of Markdown.
_BOX = re.compile(r""":{3}|(?:!!!|\?\?\?\+?)[ \t]+[a-z][a-z -]*+(?:"[^"]*")?[ \t]*$""")
_VOID = frozenset(["area", "br", "col", "embed", "hr", "img", "input", "link", "source", "track", "wbr"])
_ANY_DEPTH = {"maxNesting": 1_000_000}
"""Else markdown-it leaves out what is nested deeply; what is deeper than Python goes is refused."""


def read_markdown(content: bytes, options: Options) -> ReplacedText:  # noqa: ARG001 - as all readers
    """Read a page.

    Raises:
        DataError: It is not UTF-8, or nested too deeply.
    """
    source = decoded(content)
    paragraphs, labels = _paragraphs(source)
    places = [place for items in paragraphs for place in _unnamed(source, items, labels)]
    if places:
        ends = [*(at for at, _ in places[1:]), len(source)]
        added = (label + source[at:end] for (at, label), end in zip(places, ends, strict=True))
        source = source[: places[0][0]] + "".join(added)
        paragraphs, _ = _paragraphs(source)
    return ReplacedText(source, [block_of(source, items) for items in paragraphs])


def _paragraphs(source: str) -> tuple[list[list[Item]], Collection[str]]:
    """The texts of a page, and the labels that addresses of links have in it."""
    from markdown_it import MarkdownIt

    front = _FRONT_MATTER.match(source)
    start = front.end() if front else 0
    found: dict[str, Any] = {}
    try:
        parsed = (
            MarkdownIt("commonmark", _ANY_DEPTH)
            .enable(["table", "strikethrough"])
            .disable("inline")
            .parse(_FORMULA.sub(lambda formula: re.sub(r"[^\r\n]", "", formula[0]), source[start:]), found)
        )
    except RecursionError:
        raise DataError("nested too deeply") from None
    read = source.replace("\0", "\ufffd")  # as markdown-it does
    starts = [
        start,
        *(start + match.end() for match in re.finditer(r"\r\n|\n|\r", source[start:])),
        len(source),
    ]
    paragraphs: list[list[Item]] = []
    at = start
    for token in parsed:
        if token.type != "inline" or token.map is None:
            continue
        begin, end = starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)]
        lines = _places(read, max(begin, at), end, token.content.split("\n"))
        paragraphs += [list(_joined(_items(source, part))) for part in _parts(source, lines)]
        at = lines[-1][1] if lines else at
    return paragraphs, found.get("references", ())


def _unnamed(source: str, items: Sequence[Item], labels: Collection[str]) -> Iterator[tuple[int, str]]:
    """Where a link or image needs its label, which its text is, and will not be: in `[x]` and `[x][]`."""
    from markdown_it.common.utils import normalizeReference

    opened = -1  # of what has no other within it: a label has no brackets
    for number, item in enumerate(items):
        if item.name == "]" and item.kind == "open":
            opened = number
        elif item.name == "]" and opened >= 0:
            inside = items[opened + 1 : number]
            opened = -1
            label = "".join(
                part.text if part.kind == "text" and not part.fixed else source[part.begin : part.end]
                for part in inside
            )
            sign = source[item.begin : item.end]
            if sign in ("]", "][]") and normalizeReference(label) in labels:
                yield (item.end, f"[{label}]") if sign == "]" else (item.end - 1, label)


def _places(source: str, begin: int, end: int, lines: list[str]) -> list[tuple[int, int]]:
    """Where the lines of a paragraph stand in the file, without what stands before them (`> `, spaces).

    Nothing if one is not found, because it was written otherwise: then the paragraph stays.
    """
    places = []
    for line in lines:
        text = line.strip()
        place = source.find(text, begin, end)
        if place < 0:  # as in the cell of a table
            text = text.replace("|", "\\|")
            place = source.find(text, begin, end)
        if place < 0:
            return []
        places.append((place, place + len(text)))
        begin = place + len(text)
    return places


def _parts(source: str, lines: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The lines of each text in a paragraph, such as a footnote, without what tells what it is."""
    parts: list[list[tuple[int, int]]] = [[]]
    for number, (begin, end) in enumerate(lines):
        if _BOX.match(source, begin, end):
            parts.append([])
            continue
        sign = _BEGIN.match(source, begin, end)
        if sign and (sign["note"] or not number):
            begin = sign.end()
            parts.append([])
        begin += len(source[begin:end]) - len(source[begin:end].lstrip())
        parts[-1] += [(begin, end)] if begin < end else []
        if sign and sign["kind"] and not number:
            parts.append([])
    return [part for part in parts if part]


def _items(source: str, lines: list[tuple[int, int]]) -> Iterator[Item]:
    """The items of a paragraph; a line break is a space, or stays where it is meant."""
    opened = Counter[str]()
    for number, (begin, end) in enumerate(lines):
        if number + 1 == len(lines):
            yield from _line_items(source, begin, end, opened)
            return
        # Of two backslashes the first one says that the second one is text.
        by_sign = (end - begin - len(source[begin:end].rstrip("\\"))) % 2
        meant = source[end : end + 2] == "  " or by_sign == 1
        yield from _line_items(source, begin, end - by_sign, opened)
        following = lines[number + 1][0]
        yield Item(end - by_sign, following, "text", "\n" if meant else " ", fixed=meant)


def _joined(items: Iterator[Item]) -> Iterator[Item]:
    """The same with one item for neighbours that are both text."""
    for is_text, alike in groupby(items, key=lambda item: item.kind == "text" and not item.fixed):
        first, *more = alike
        if is_text and more:
            yield first._replace(end=more[-1].end, text="".join(item.text for item in (first, *more)))
        else:
            yield from (first, *more)


class _Ends:
    """Where code and comments of a line end, found in time that grows with its length alone."""

    def __init__(self, source: str, begin: int, end: int) -> None:
        self._source, self._last_comment = source, source.rfind("-->", begin, end)
        self._code: dict[str, list[int]] = {}  # by what ends it, the last one first
        for ticks in [*re.compile("`+").finditer(source, begin, end)][::-1]:
            self._code.setdefault(ticks[0], []).append(ticks.end())

    def of(self, match: re.Match[str]) -> int:
        """Where something ends; -1 if it has no end, or is a sign of the text."""
        if match["ticks"]:
            ends = self._code.get(match[0], [])
            while ends and ends[-1] <= match.end():
                ends.pop()
            return ends[-1] if ends else -1
        if match["comment"]:
            found = match.end() <= self._last_comment
            return self._source.find("-->", match.end()) + len("-->") if found else -1
        return -1 if match["sign"] else match.end()


def _line_items(source: str, begin: int, end: int, opened: Counter[str]) -> Iterator[Item]:
    """The items of a line; `opened` are the names of the elements that have begun in the paragraph."""
    at = searched = begin
    ends = _Ends(source, begin, end)
    while (match := _INLINE.search(source, searched, end)) is not None:
        searched, stop = match.end(), ends.of(match)
        if stop < 0:
            continue
        if match.start() > at:
            yield Item(at, match.start(), "text", source[at : match.start()])
        yield _item(source, match, stop, end, opened)
        at = searched = stop
    if at < end:
        yield Item(at, end, "text", source[at:end])


def _item(source: str, match: re.Match[str], stop: int, end: int, opened: Counter[str]) -> Item:
    begin = match.start()
    if match["word"] or match["ticks"]:
        return Item(begin, stop, "text", source[begin:stop].strip("`<>"), fixed=True)
    kind: Kind = "point"
    name = ""
    if match["open"] or match["close"]:
        kind, name = "open" if match["open"] else "close", "]"
    elif match["tag"]:
        name = match["name"].lower()
        if name == "br":
            return Item(begin, stop, "text", "\n", fixed=True)
        if name not in _VOID and not match[0].endswith("/>"):
            kind = "close" if match[0].startswith("</") else "open"
    elif match["emphasis"]:
        name = match[0]
        spaced = source[begin - 1 : begin].isspace(), stop == end or source[stop].isspace()
        if not spaced[0] and opened[name]:
            kind = "close"
        elif not spaced[1]:
            kind = "open"
        else:
            return Item(begin, stop, "text", name)
    if kind == "open":
        opened[name] += 1
    elif kind == "close" and opened[name]:
        opened[name] -= 1
    return Item(begin, stop, kind, name=name)
