"""Digests that show whether a JSON file and the files that it speaks for are still what was written.

They guard against damage, not against people: who can write the files can write their digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from deepwire.errors import DataError

_OWN, _FILES = "check", "files"


def seal(content: Mapping[str, object]) -> dict[str, object]:
    """The content of a JSON file with a digest of itself."""
    return {**content, _OWN: _digest_of(content)}


def seal_files(content: Mapping[str, object], folder: Path, files: Iterable[Path]) -> dict[str, object]:
    """The content of a JSON file of a folder with digests of itself and of some small files of the folder."""
    digests = {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(files)}
    return seal({**content, _FILES: digests})


def read_sealed(path: Path) -> dict[str, object]:
    """Read a JSON file that `seal` or `seal_files` made, and check the files that it names.

    Raises:
        DataError: one of them is missing, or is not what it was.
        OSError: one of them cannot be read.
    """
    content = _read(path)
    if content.pop(_OWN, None) != _digest_of(content):
        raise DataError(f"{path}: damaged, or written by another version of deepwire")
    digests = content.get(_FILES, {})
    for name, digest in digests.items() if isinstance(digests, dict) else ():
        file = path.parent / name
        try:
            found = _digest(file)
        except FileNotFoundError:
            raise DataError(f"{file}: the file is missing") from None
        if found != digest:
            raise DataError(f"{file}: damaged: it is not what was written")
    return content


def _read(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: the file is missing") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: damaged: not JSON") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: damaged: not a JSON object")
    return content


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()


def _digest_of(content: Mapping[str, object]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
