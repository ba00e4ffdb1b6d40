"""Translated documents that wait to be fetched."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_SPECIAL = frozenset(" /\\:*?\"'<>|%;&#")
_LONGEST = 50  # characters, of four bytes at most: a name on disk has 255


class KeptFile(NamedTuple):
    """A document on disk.

    Attributes:
        path: Where it is.
        name: What it is called when it is fetched.
        until: When it goes, in seconds of the clock.
    """

    path: Path
    name: str
    until: float


class KeptFiles:
    """Documents in a folder of their own, which goes with the server.

    Args:
        seconds: How long each is kept.
        most: How many at a time; the oldest makes room.
        now: The clock.
    """

    def __init__(self, seconds: float, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._most, self._now = seconds, most, now
        self._files: dict[str, KeptFile] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def keep(self, name: str, content: bytes) -> str:
        """Keep a document; what it can be fetched by, which nobody guesses.

        Args:
            name: That of the document.
            content: All of it.
        """
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="deepwire-")
        self.drop(room=1)
        plain = "".join(
            sign if sign.isprintable() and sign not in _SPECIAL else "_" for sign in name[-_LONGEST:]
        ).lstrip(".")
        key = f"{secrets.token_hex(16)}.{plain}"
        path = Path(self._folder.name) / key
        path.write_bytes(content)
        self._files[key] = KeptFile(path, plain, self._now() + self._seconds)
        return key

    def find(self, key: str) -> KeptFile | None:
        """The document of a key; None where there is none, or no more."""
        self.drop()
        return self._files.get(key)

    def drop(self, room: int = 0) -> None:
        """Remove those whose time is over, and the oldest where there is no room for so many more."""
        now = self._now()
        for number, (key, kept) in enumerate(list(self._files.items())):
            if kept.until <= now or (len(self._files) + room > self._most and number == 0):
                kept.path.unlink(missing_ok=True)
                del self._files[key]

    def close(self) -> None:
        """Remove all of them."""
        self._files.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
