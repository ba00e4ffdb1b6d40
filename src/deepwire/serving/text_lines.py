"""A text of a request as the lines that the model is given, and the line breaks between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# The breaks that Unicode calls mandatory (UAX 14), CR LF as one.
_BREAK = re.compile("(\r\n|[\n\v\f\r\x85\u2028\u2029])")


class TextLines(NamedTuple):
    """A text, cut at its line breaks; a model translates one line at a time.

    Attributes:
        lines: What is between the breaks, without NUL, which this toolkit takes for a damaged line.
        breaks: What comes after each line but the last.
    """

    lines: tuple[str, ...]
    breaks: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> TextLines:
        """Cut a text; one without breaks is one line."""
        parts = _BREAK.split(text)
        return cls(tuple(line.replace("\0", " ") for line in parts[::2]), tuple(parts[1::2]))

    def joined(self, translations: Sequence[str]) -> str:
        """The translations of the lines with the breaks of the text."""
        pairs = zip(translations, (*self.breaks, ""), strict=True)
        return "".join(translation + line_break for translation, line_break in pairs)


def has_words(line: str) -> bool:
    """Whether there is something to translate."""
    return bool(line) and not line.isspace()
