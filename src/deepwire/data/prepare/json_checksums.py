"""Checksums in a JSON file: of its own content, and of the files that it describes.

They guard against damage, not against people: who can write the files can write their checksums.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from deepwire.errors import DataError

_OWN, _FILES = "check", "files"


def with_checksum(content: Mapping[str, object]) -> dict[str, object]:
    """The content of a JSON file with a checksum of itself."""
    return {**content, _OWN: _digest_of(content)}


def with_file_checksums(
    content: Mapping[str, object], folder: Path, files: Iterable[Path]
) -> dict[str, object]:
    """The content of a JSON file of a folder with checksums of itself and of small files of the folder."""
    digests = {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(files)}
    return with_checksum({**content, _FILES: digests})


def read_checked(path: Path) -> dict[str, object]:
    """Read a JSON file with checksums, and compare its content and the files that it names with them.

    Raises:
        DataError: one of them is missing, or is not what it was.
        OSError: one of them cannot be read.
    """
    content = read_object(path)
    if content.pop(_OWN, None) != _digest_of(content):
        raise DataError(f"{path}: damaged, or written by another version of deepwire")
    digests = content.get(_FILES, {})
    if not isinstance(digests, dict):
        raise DataError(f"{path}: damaged: no checksums of its files")
    for name, written in digests.items():
        file = path.parent / name
        try:
            digest = _digest(file)
        except FileNotFoundError:
            raise DataError(f"{file}: the file is missing") from None
        if digest != written:
            raise DataError(f"{file}: damaged: it is not what was written")
    return content


def read_object(path: Path) -> dict[str, object]:
    """Read a JSON file that holds an object.

    Raises:
        DataError: it is missing, or holds something else.
        OSError: it cannot be read.
    """
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
