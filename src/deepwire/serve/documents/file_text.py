"""The text of a file, and references to characters in it, such as &amp; and &#228;."""

from __future__ import annotations

import html
import re

from deepwire.errors import DataError


def decoded(content: bytes) -> str:
    """Text in UTF-8 (or UTF-16 with a byte order mark).

    Raises:
        DataError: It is in another encoding.
    """
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as fault:
        line = content[: fault.start].decode(encoding).count("\n") + 1
        said = f"line {line}: not {encoding.upper()} (byte {fault.start})"
        raise DataError(said, "convert it to UTF-8 first") from None


_ASCII = "".join(map(chr, range(128)))


def encoded(text: str, charset: str) -> bytes | None:
    """Text in a charset that has ASCII in it; None where it is not such a one, or lacks a character."""
    if not has_ascii(charset):  # first: some charsets, such as punycode, take quadratic time
        return None
    try:
        content = text.encode(charset)
    except UnicodeError:
        return None
    return content if content.isascii() == text.isascii() else None


def has_ascii(charset: str) -> bool:
    """Whether a charset writes ASCII as it is."""
    try:
        return _ASCII.encode(charset) == _ASCII.encode()
    except (LookupError, UnicodeError):
        return False


_MANY = re.compile(r"&#([0-9]{8,})")
_BEYOND = "9999999"  # no character has so large a number


def unescaped(text: str) -> str:
    """The text with characters for its references, as browsers show it: U+FFFD where there is no such one.

    However many digits a number has: Python refuses to read more than 4300.
    """
    return html.unescape(_MANY.sub(_with_few_digits, text))


def _with_few_digits(reference: re.Match[str]) -> str:
    digits = reference[1].lstrip("0") or "0"
    return f"&#{digits if len(digits) <= len(_BEYOND) else _BEYOND}"
