"""Markdown: headings, lists, tables, links, code and HTML stay; the text of paragraphs is translated.

The lines of a paragraph become one line, as its sentences go across them; line breaks that are meant stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from deepwire.documents.document import Options, Run
from deepwire.documents.file_text import decoded
from deepwire.documents.formats.replaced_text import ReplacedText, Stretch
from deepwire.errors import DataError

_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n.*?\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
# Markup within a line. The text of a link or image is text; what `code`, `url` and `math` match is a word of
# the sentence that stays.
_INLINE = re.compile(
    r"(?P<code>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<url><[A-Za-z][A-Za-z0-9+.-]*:[^<>\s]*>|https?://[^\s<>)\]]+)"
    r"|(?P<math>\$[^$\s](?:[^$\n]*[^$\s])?\$)"
    r"|(?P<markup></?[A-Za-z][^<>]*>|<!--.*?-->|\[\^[^\]\s]+\]"
    r"|\]\((?:[^()\n]|\([^()\n]*\))*\)|\]\[[^\]\n]*\]|!?\[|\]|\\.|\*+|~~|(?<!\w)_+|_+(?!\w)|&\w+;)"
)
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
    blocks: list[list[Stretch]] = []
    at = start
    for token in parsed:
        if token.type != "inline" or token.map is None or len(token.content) > _MAX_INLINE:
            continue
        begin, end = starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)]
        lines = _places(source, max(begin, at), end, token.content.split("\n"))
        if lines:
            blocks.append(_joined(_stretches(source, lines)))
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


def _stretches(source: str, lines: list[tuple[int, int]]) -> Iterator[Stretch]:
    """The runs of a paragraph; a line break is a space, or stays where it is meant."""
    for number, (begin, end) in enumerate(lines):
        yield from _runs(source, begin, end)
        if number + 1 < len(lines):
            following = lines[number + 1][0]
            meant = source[end : end + 2] == "  " or source[end - 1] == "\\"
            yield Stretch(end, following, Run("\n" if meant else " ", fixed=meant))


def _joined(stretches: Iterator[Stretch]) -> list[Stretch]:
    """The same with one stretch for neighbours that are both text."""
    found: list[Stretch] = []
    for one in stretches:
        if found and not one.run.fixed and not found[-1].run.fixed:
            before = found.pop()
            one = Stretch(before.begin, one.end, Run(before.run.text + one.run.text))
        found.append(one)
    return found


def _runs(source: str, begin: int, end: int) -> Iterator[Stretch]:
    at = begin
    for match in _INLINE.finditer(source, begin, end):
        if match.start() > at:
            yield Stretch(at, match.start(), Run(source[at : match.start()]))
        word = "" if match["markup"] else match[0].strip("`<>")
        yield Stretch(match.start(), match.end(), Run(word, fixed=True))
        at = match.end()
    if at < end:
        yield Stretch(at, end, Run(source[at:end]))
