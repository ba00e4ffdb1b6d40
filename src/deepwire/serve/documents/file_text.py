"""The text of a file."""

from __future__ import annotations

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
