"""The files of a model directory, checked before use: the manifest with all digests, and tensors."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from deepwire.errors import ModelError
from deepwire.io.atomic import json_text
from deepwire.io.regular_files import UnreadableError, cannot_read, open_regular, read_json

MANIFEST = "manifest.json"
_BLOCK = 1 << 20
_AGAIN = "delete the folder, and copy or make it again"


class DamagedError(ModelError):
    """A model directory is not what its manifest says.

    Args:
        folder: The model directory.
        reason: What is wrong, such as ``model.safetensors: digest differs``.
    """

    def __init__(self, folder: Path, reason: str) -> None:
        instead = "use another checkpoint of the run" if folder.parent.name == "checkpoints" else _AGAIN
        super().__init__(f"{folder} is damaged ({reason})", instead)
        self.folder = folder
        self.reason = reason


def digest(path: Path) -> str:
    """blake2b-128 of a file, in hexadecimal."""
    with open_regular(path) as file:
        return _digest(file)


def _digest(file: BinaryIO) -> str:
    state = hashlib.blake2b(digest_size=16)
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
    """Check that the files of ``folder`` are those of its manifest, byte by byte.

    Args:
        folder: A model directory.
        required: Names that the manifest must list.
        skip: Names that are not read (their digest is not checked).

    Raises:
        DamagedError: For a missing or odd manifest, for missing or changed files, and for pipes and devices.
        UnreadableError: If a file cannot be read, which says nothing about what it holds.
    """
    _refuse_special_files(folder)
    files = _listed(folder)
    for name in required:
        if name not in files:
            raise DamagedError(folder, f"{MANIFEST}: does not list {name}")
    for name, record in files.items():
        if name not in skip:
            _check_file(folder, name, record)


def check_file(folder: Path, name: str) -> None:
    """Check one file of ``folder`` against its manifest; a file that is not listed passes.

    Raises:
        DamagedError, UnreadableError: As in `check_manifest`.
    """
    if (record := _listed(folder).get(name)) is not None:
        _check_file(folder, name, record)


def fingerprint(folder: Path) -> str:
    """One digest that stands for all files of ``folder``: that of its manifest.

    Raises:
        DamagedError: If there is no manifest.
        UnreadableError: If it cannot be read.
    """
    try:
        return digest(folder / MANIFEST)
    except OSError as error:
        raise _trouble(folder, MANIFEST, error) from error


def _listed(folder: Path) -> dict[str, tuple[int, str]]:
    try:
        files = read_json(folder / MANIFEST).get("files")
    except UnreadableError:
        raise
    except ModelError as error:
        missing = isinstance(error.__cause__, FileNotFoundError)
        raise DamagedError(folder, f"{MANIFEST}: {'missing' if missing else 'cannot be read'}") from error
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
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise DamagedError(folder, f"{name}: is a link out of the folder")
    size, expected = record
    try:
        with open_regular(path) as file:
            actual_size = os.fstat(file.fileno()).st_size
            actual = _digest(file) if actual_size == size else ""
    except OSError as error:
        raise _trouble(folder, name, error) from error
    if actual_size != size:
        raise DamagedError(folder, f"{name}: {actual_size} bytes, not {size}")
    if actual != expected:
        raise DamagedError(folder, f"{name}: digest differs")


def _trouble(folder: Path, name: str, error: OSError) -> ModelError:
    """The error of a file that cannot be opened or read: damage only where there is no such file."""
    unreadable = cannot_read(folder / name, error)
    if isinstance(unreadable, UnreadableError):
        return unreadable
    return DamagedError(
        folder, f"{name}: {'missing' if isinstance(error, FileNotFoundError) else error.strerror}"
    )


def _refuse_special_files(folder: Path) -> None:
    """A pipe or a device under any name: whoever opens it, listed or not, might wait for ever."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                kind = path.stat().st_mode
            except OSError:  # a link that leads nowhere
                continue
            if not stat.S_ISREG(kind):
                raise DamagedError(folder, f"{path.relative_to(folder)}: is not a regular file")


Shape = tuple[int, ...]

_LARGEST_SIZE = (1 << 63) - 1
"""The largest size of a dimension: torch counts with 64 bits and a sign."""


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write named tensors to ``path``. They may lie on any device; what shares memory is written as copies.

    ``metadata`` is kept in the head of the file, for programs that look for it there.

    Raises:
        OSError: If the disk is full or cannot be written.
    """
    path.touch()  # with the permissions of any new file; the library makes one for its owner alone
    permissions = stat.S_IMODE(path.stat().st_mode)
    try:
        save_file(_apart(tensors), path, metadata)
    except SafetensorError as error:
        raise _system_error(error) from error
    path.chmod(permissions)


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The values on the CPU, none in the memory of another, as the library wants them."""
    apart, seen = dict[str, Tensor](), set[int]()
    for name, tensor in tensors.items():
        value = tensor.detach().contiguous().cpu()
        place = value.untyped_storage().data_ptr()
        apart[name] = value.clone() if place in seen else value
        seen.add(place)
    return apart


def _system_error(error: SafetensorError) -> OSError:
    """The system's error behind one of the safetensors library, which has its number only in its text."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def read_shapes(path: Path) -> dict[str, Shape]:
    """Names and shapes of the tensors in ``path``, without reading the tensors.

    Raises:
        ModelError: If the file is not safetensors, or its header disagrees with its size.
    """
    try:
        open_regular(path).close()  # the library would wait for a pipe, and gives no error numbers
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no mapping
    except OSError as error:
        raise cannot_read(path, error) from error
    except SafetensorError as error:
        raise _not_safetensors(path, error) from error
    for name, shape in shapes.items():
        if max(shape, default=0) > _LARGEST_SIZE:
            raise ModelError(f"{path}: tensor {name}: shape {list(shape)} is too large")
    return shapes


def read_tensors(path: Path, device: torch.device) -> dict[str, Tensor]:
    """All tensors of ``path`` on ``device``.

    Raises:
        ModelError: If the file is not a sound safetensors file.
    """
    read_shapes(path)
    try:
        return load_file(path, device=str(device))
    except OSError as error:
        raise cannot_read(path, error) from error
    except SafetensorError as error:
        raise _not_safetensors(path, error) from error


def _not_safetensors(path: Path, error: SafetensorError) -> ModelError:
    return ModelError(f"{path}: is not a safetensors file: {error}")


def bytes_of(tensors: dict[str, Tensor]) -> int:
    """How many bytes the values of ``tensors`` take on disk."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
