"""The manifest of a model directory: size and digest of every file, so that damage is seen before use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from deepwire.checkpoint.files import json_text, read_json
from deepwire.errors import ModelError

MANIFEST = "manifest.json"
_BLOCK = 1 << 20


class DamagedError(ModelError):
    """A model directory is not what its manifest says.

    Args:
        folder: The model directory.
        reason: What is wrong, such as ``model.safetensors: digest differs``.
    """

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"{folder} is damaged ({reason})", _instead_of(folder))
        self.folder = folder
        self.reason = reason


def _instead_of(folder: Path) -> str:
    """What to do without a damaged folder: which checkpoints of its run are left, if it is one."""
    if folder.parent.name == "averages":
        return "delete the folder; the average is made again when it is asked for"
    if folder.parent.name != "checkpoints":
        return "copy it again, or make it again"
    names = (re.fullmatch(r"update-(\d+)", other.name) for other in folder.parent.glob("update-*"))
    left = sorted(int(name[1]) for name in names if name and name[0] != folder.name)
    if not left:
        return "the run has no other checkpoint"
    return f"use another one: {' or '.join(f'{folder.parent.parent}@update-{one}' for one in left[-2:])}"


def digest(path: Path) -> str:
    """blake2b-128 of a file, in hexadecimal."""
    state = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            state.update(block)
    return state.hexdigest()


def write_manifest(folder: Path) -> None:
    """Record every file under ``folder`` in ``folder/manifest.json``."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "blake2b": digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    (folder / MANIFEST).write_text(json_text({"format": 1, "files": files}), encoding="utf-8")


def check_manifest(folder: Path, *, required: Collection[str], skip: Collection[str] = ()) -> None:
    """See that the files of ``folder`` are those of its manifest, byte by byte.

    Args:
        folder: A model directory.
        required: Names that the manifest must list.
        skip: Names that are not read (their digest is not checked).

    Raises:
        DamagedError: For a missing or odd manifest, and for missing, changed or foreign files.
    """
    files = _listed(folder)
    for name in required:
        if name not in files:
            raise DamagedError(folder, f"{MANIFEST}: does not list {name}")
    for name, record in files.items():
        if name not in skip:
            _check_file(folder, name, record)


def fingerprint(folder: Path) -> str:
    """One digest that stands for all files of ``folder``: that of its manifest.

    Raises:
        DamagedError: If there is no manifest.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise DamagedError(folder, f"{MANIFEST}: missing")
    return digest(path)


def _listed(folder: Path) -> dict[str, tuple[int, str]]:
    if not (folder / MANIFEST).is_file():
        raise DamagedError(folder, f"{MANIFEST}: missing")
    try:
        files = read_json(folder / MANIFEST).get("files")
    except ModelError as error:
        raise DamagedError(folder, f"{MANIFEST}: cannot be read") from error
    if not isinstance(files, dict) or not files:
        raise DamagedError(folder, f"{MANIFEST}: lists no files")
    listed = {}
    for name, record in files.items():
        size = record.get("bytes") if isinstance(record, dict) else None
        expected = record.get("blake2b") if isinstance(record, dict) else None
        if not isinstance(size, int) or not isinstance(expected, str):
            raise DamagedError(folder, f"{MANIFEST}: no size and digest for {name}")
        listed[str(name)] = (size, expected)
    return listed


def _check_file(folder: Path, name: str, record: tuple[int, str]) -> None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise DamagedError(folder, f"{MANIFEST}: {name!r} lies outside the folder")
    path = folder.joinpath(*parts)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DamagedError(folder, f"{name}: is a link out of the folder")
    if not path.is_file():
        raise DamagedError(folder, f"{name}: missing")
    size, expected = record
    if path.stat().st_size != size:
        raise DamagedError(folder, f"{name}: {path.stat().st_size} bytes, not {size}")
    try:
        found = digest(path)
    except OSError as error:
        raise DamagedError(folder, f"{name}: cannot be read: {error.strerror}") from error
    if found != expected:
        raise DamagedError(folder, f"{name}: digest differs")
