"""Catalogues of gettext (.po, .pot): messages without a translation get one, marked as fuzzy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from deepwire.documents.document import Options, Pieces, Run
from deepwire.documents.file_text import decoded
from deepwire.documents.formats.placeholders import with_placeholders
from deepwire.errors import DataError

_FUZZY = "fuzzy"
_LINE = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr)(?:\[\d+\])?\s+)?"(?:[^"\\]|\\.)*"')
_PREFIX = re.compile(r"#(?:~?(?P<past>\|)|~)\s*")
"""Of messages that are obsolete, and of what a message was in the past."""
_MAY_FOLLOW = {
    "": ("msgctxt", "msgid"),
    "msgctxt": ("msgid",),
    "msgid": ("msgid_plural", "msgstr"),
    "msgid_plural": ("msgstr",),
    "msgstr": ("msgctxt", "msgid", "msgstr"),
}
"""The keywords behind each."""
_ORDER = "each msgid needs a msgstr behind it, which may be empty"


class PoDocument:
    """A catalogue. What has a translation already keeps it.

    Args:
        catalogue: As polib reads it.
    """

    def __init__(self, catalogue: Any) -> None:
        self._catalogue = catalogue
        # The lines of the header in their order, not in that of polib.
        catalogue.ordered_metadata = lambda: list(catalogue.metadata.items())
        self._entries = [entry for entry in catalogue if _is_open(entry)]
        texts = [text for entry in self._entries for text in _texts(entry)]
        self.units: Sequence[Sequence[Run]] = [
            [run for _, _, run in with_placeholders(text)] for text in texts
        ]

    def written(self, translations: Sequence[Pieces]) -> bytes:
        """The catalogue with more translations."""
        following = iter(translations)
        for entry in self._entries:
            msgstrs = ["".join(piece.text for piece in next(following)) for _ in _texts(entry)]
            msgstrs = [_with_ends(source, text) for source, text in zip(_texts(entry), msgstrs, strict=True)]
            if entry.msgid_plural:
                forms = len(entry.msgstr_plural) or 2
                entry.msgstr_plural = {number: msgstrs[min(number, 1)] for number in range(forms)}
            else:
                entry.msgstr = msgstrs[0]
            if _FUZZY not in entry.flags:
                entry.flags.append(_FUZZY)
        written = str(self._catalogue)
        return (written if self._catalogue.header else written.removeprefix("#\n")).encode()


def _is_open(entry: Any) -> bool:
    done = any(entry.msgstr_plural.values()) if entry.msgid_plural else bool(entry.msgstr)
    return bool(entry.msgid) and not entry.obsolete and not done


def _texts(entry: Any) -> list[str]:
    return [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]


def _with_ends(source: str, text: str) -> str:
    """A line break at either end must be in both, or msgfmt refuses the catalogue."""
    text = text.strip("\n")
    before, after = source[: len(source) - len(source.lstrip("\n"))], source[len(source.rstrip("\n")) :]
    return f"{before}{text}{after}"


def read_po(content: bytes, options: Options) -> PoDocument:  # noqa: ARG001 - as all readers
    """Read a catalogue.

    Raises:
        DataError: It is not UTF-8, or no catalogue.
    """
    import polib

    # A text of a single line would be taken for the name of a file.
    text = decoded(content).removeprefix("\ufeff") + "\n\n"
    _check(text)
    width = max((len(line) for line in text.splitlines()), default=0)
    try:
        return PoDocument(polib.pofile(text, wrapwidth=max(78, width), check_for_duplicates=False))
    except (OSError, ValueError, IndexError) as fault:
        place = str(fault).partition("(line ")[2].partition(")")[0]
        where = f"line {place}: " if place else ""
        raise DataError(f"{where}not a catalogue of gettext") from None


def _check(text: str) -> None:
    """See that each line is complete, and each message: polib reads others with loss.

    Raises:
        DataError: One is not.
    """
    keyword, number = "", 0
    for number, line in enumerate(text.rstrip().splitlines(), 1):
        prefix = _PREFIX.match(line.strip())
        said = line.strip()[prefix.end() if prefix else 0 :]
        if not said or said.startswith("#"):
            continue
        found = _LINE.fullmatch(said)
        if found is None:
            raise DataError(f'line {number}: no line of a gettext catalogue, as msgid "Open": {said[:40]}')
        if found[1] and not (prefix and prefix["past"]):
            if found[1] not in _MAY_FOLLOW[keyword]:
                raise DataError(f"line {number}: {found[1]} behind {keyword or 'nothing'}", _ORDER)
            keyword = found[1]
    if keyword not in ("", "msgstr"):
        raise DataError(f"line {number}: the file ends without a msgstr for its last {keyword}", _ORDER)
