"""Text that can be a line of a UTF-8 file: a sentence a line, and other programs end a line at CR as well."""

from __future__ import annotations

import re

_LINE_BREAKS = re.compile(r"\r\n|[\n\r]")


def joined(text: str) -> str:
    """`text` with a space for each line break: LF, CR, or both as one."""
    return _LINE_BREAKS.sub(" ", text)


def plain(text: str) -> str:
    """`text` with a space for each line break and each NUL, which this toolkit takes for a damaged line."""
    return joined(text).replace("\0", " ")


def without_surrogates(text: str) -> str:
    """Text without halves of surrogate pairs, which UTF-8 cannot hold; they become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
