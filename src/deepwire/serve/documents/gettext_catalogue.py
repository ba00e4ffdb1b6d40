"""Catalogues of gettext (.po, .pot): messages without a translation get one, marked as fuzzy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deepwire.data.text.language_guess import language_code
from deepwire.errors import DataError
from deepwire.serve.documents.document import Document, Options, Pieces, Run
from deepwire.serve.documents.marked_text import Change, ReplacedText, block_of, decoded, replaced
from deepwire.serve.documents.placeholders import items_of

_LINE = re.compile(
    r'(?:(?P<keyword>msgctxt|msgid|msgid_plural|msgstr)(?:\[(?P<form>\d{1,9})\])?\s+)?"(?P<text>(?:[^"\\]|\\.)*)"'
)
_PREFIX = re.compile(r"#(?:~?(?P<past>\|)|~)\s*")
"""The beginnings of obsolete messages, and of what a message was in the past."""
_MAY_FOLLOW = {
    "": ("msgctxt", "msgid"),
    "msgctxt": ("msgid",),
    "msgid": ("msgid_plural", "msgstr"),
    "msgid_plural": ("msgstr",),
    "msgstr": ("msgctxt", "msgid", "msgstr"),
}
"""The keywords behind each."""
_ORDER = "each msgid needs a msgstr behind it, which may be empty"
_MEANT = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", '"': '"', "\\": "\\"}
_ESCAPES = str.maketrans({character: f"\\{letter}" for letter, character in _MEANT.items()})


@dataclass
class _String:
    """A string of a message, which stands from `begin` to `end`; `form` is its number in a plural."""

    keyword: str
    form: int
    begin: int
    end: int
    text: str = ""


@dataclass
class _Message:
    """A message.

    Attributes:
        place: Where a line with flags can be put.
        flags_end: The end of its last line with flags, if it has any.
        is_fuzzy: Whether it has the flag already.
        obsolete: Whether the program has it no more.
        strings: In their order.
    """

    place: int = -1
    flags_end: int = -1
    is_fuzzy: bool = False
    obsolete: bool = False
    strings: list[_String] = field(default_factory=list)

    def texts(self, *keywords: str) -> list[str]:
        return [string.text for string in self.strings if string.keyword in keywords]

    @property
    def is_complete(self) -> bool:
        """Whether only further forms of a plural, or lines, can belong to it."""
        return bool(self.strings) and self.strings[-1].keyword == "msgstr"

    @property
    def is_open(self) -> bool:
        """Whether it wants a translation; the header does not."""
        return not self.obsolete and any(self.texts("msgid")) and not any(self.texts("msgstr"))


class _PoDocument:
    """A catalogue. What has a translation already keeps it, and all else stays character by character."""

    def __init__(self, source: str) -> None:
        self._source = source
        messages = _messages(source)
        self._charset = _charset(source, messages)
        self._messages = [message for message in messages if message.is_open]
        self._texts = [
            [
                ReplacedText(text, [block_of(text, *items_of(text), trimmed=False)])
                for text in message.texts("msgid", "msgid_plural")
            ]
            for message in self._messages
        ]
        self.units: Sequence[Sequence[Run]] = [
            unit for texts in self._texts for text in texts for unit in text.units
        ]

    def render(self, translations: Sequence[Pieces]) -> bytes:
        """In UTF-8, which its header then names."""
        changes = list(self._changes(iter(translations)))
        if changes and self._charset is not None:
            changes.append((*self._charset.span(), "UTF-8"))
        return replaced(self._source, changes).encode()

    def _changes(self, translations: Iterator[Pieces]) -> Iterator[Change]:
        line_break = "\r\n" if "\r\n" in self._source else "\n"
        for message, replaced_texts in zip(self._messages, self._texts, strict=True):
            texts = [
                _with_ends(text.source, text.text_with([next(translations) for _ in text.units]))
                for text in replaced_texts
            ]
            if message.flags_end < 0:
                yield message.place, message.place, f"#, fuzzy{line_break}"
            elif not message.is_fuzzy:
                yield message.flags_end, message.flags_end, ", fuzzy"
            for string in message.strings:
                if string.keyword == "msgstr":
                    text = texts[min(string.form, len(texts) - 1)]
                    yield string.begin, string.end, line_break.join(_quoted(text))


_LANGUAGE = re.compile(r'^"Language: *([\w-]+)', re.MULTILINE)
_CHARSET = re.compile(r"(?<=charset=)(?!utf-?8\b)[\w.:-]+", re.IGNORECASE)


def _charset(source: str, messages: Sequence[_Message]) -> re.Match[str] | None:
    """Where the header names another charset than UTF-8."""
    for message in messages:
        if not message.obsolete and not any(message.texts("msgctxt", "msgid")):
            for string in message.strings:
                if string.keyword == "msgstr":
                    return _CHARSET.search(source, string.begin, string.end)
    return None


def _with_ends(source: str, text: str) -> str:
    """A line break at either end must be in both, or msgfmt refuses the catalogue."""
    text = text.strip("\n")
    before, after = source[: len(source) - len(source.lstrip("\n"))], source[len(source.rstrip("\n")) :]
    return f"{before}{text}{after}"


def _quoted(text: str) -> list[str]:
    """A string in lines, which end at its line breaks."""
    lines = [line.translate(_ESCAPES) for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    return [f'"{line}"' for line in ([""] if len(lines) != 1 else []) + lines]


def read_po(content: bytes, options: Options) -> Document:
    """Read a catalogue.

    Raises:
        DataError: It is not UTF-8, or no catalogue.
    """
    source = decoded(content)
    document = _PoDocument(source)
    named, wanted = _LANGUAGE.search(source), options.target
    if named and wanted and language_code(named[1]) != language_code(wanted):
        options.warn(f"its header says Language: {named[1]}, but its translations are in {wanted}")
    return document


def _messages(source: str) -> list[_Message]:
    """All messages, the header and those that are obsolete among them."""
    messages = [_Message()]
    at = len(source) - len(source.removeprefix("\ufeff"))
    keyword, last = "", 0
    for number, line in enumerate(source[at:].split("\n"), 1):
        begin, at = at, at + len(line) + 1
        content = line.strip()
        prefix = _PREFIX.match(content)
        past = bool(prefix and prefix["past"])
        said = content[prefix.end() if prefix else 0 :]
        if not said:
            continue
        last = number
        found = _LINE.fullmatch(said)
        if messages[-1].is_complete and (past or not found or found["keyword"] not in (None, "msgstr")):
            messages.append(_Message())
        message = messages[-1]
        if said.startswith("#"):
            if said.startswith("#,"):
                message.is_fuzzy |= "fuzzy" in (flag.strip() for flag in said[len("#,") :].split(","))
                message.flags_end = begin + len(line.rstrip())
            continue
        if found is None:
            raise DataError(f'line {number}: no line of a gettext catalogue, as msgid "Open": {said[:40]}')
        if message.place < 0:
            message.place = begin
        if past:
            continue
        message.obsolete = message.obsolete or prefix is not None
        end = begin + len(line.rstrip())
        if found["keyword"]:
            if found["keyword"] not in _MAY_FOLLOW[keyword]:
                raise DataError(f"line {number}: {found['keyword']} behind {keyword or 'nothing'}", _ORDER)
            keyword = found["keyword"]
            form = int(found["form"] or 0)
            message.strings.append(_String(keyword, form, begin + line.index('"'), end))
        elif not message.strings:
            raise DataError(f"line {number}: a text behind nothing", _ORDER)
        text = re.sub(r"\\(.)", lambda match: _MEANT.get(match[1], match[0]), found["text"])
        message.strings[-1].text += text
        message.strings[-1].end = end
    if keyword not in ("", "msgstr"):
        raise DataError(f"line {last}: the file ends without a msgstr for its last {keyword}", _ORDER)
    return messages
