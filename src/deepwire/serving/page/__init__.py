"""The page that people translate with: three files, each under one fixed address."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple


class File(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str


_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}


def read_page() -> Mapping[str, File]:
    """The files by their addresses; what is not among them cannot be asked for."""
    folder = files(__name__)
    return {path: File((folder / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}
