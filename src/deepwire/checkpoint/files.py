"""Writing that a crash cannot leave half done, and clear errors for full disks."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from safetensors import SafetensorError

from deepwire.errors import ModelError, ResourceError, UsageError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Why there is no file of that name to be read; every other error says nothing about what the file holds.
_NO_FILE = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EINVAL,
    errno.ENXIO,
}
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_TEMPORARY = ".tmp"
_REPLACED = ".old"
_RUBBISH = ".delete"


def human_bytes(count: float) -> str:
    """``count`` bytes as people read them: ``812 B``, ``3.1 GB`` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def require_space(folder: Path, needed: int) -> None:
    """Refuse to begin a write of ``needed`` bytes that cannot fit on the disk of ``folder``.

    Raises:
        ResourceError: If less is free; names both numbers and the folder.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            f"{folder}: a write needs {human_bytes(needed)}, but only {human_bytes(free)} are free",
            "free some space and run the same command again; what was saved before is intact",
        )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk under ``path`` into an error of one line.

    Raises:
        ResourceError: For every operating-system error while writing.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = _reason(error)
        code = error.errno if isinstance(error, OSError) else _code(error)
        hint = (
            "free some space and run the same command again"
            if code in _FULL
            else "see that the folder can be written"
        )
        raise ResourceError(f"{path}: cannot write: {reason}", hint) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    code = _code(error)
    return os.strerror(code) if code else " ".join(str(error).split())


def _code(error: Exception) -> int:
    """The system's error number in an error of the safetensors library, which has it only in its text."""
    found = re.search(r"os error (\d+)", str(error))
    return int(found[1]) if found else 0


def sync(path: Path) -> None:
    """Wait until a file or folder has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in one step: readers see the old file or the new one."""
    temporary = path.with_name(f".{path.name}{_TEMPORARY}")
    with disk_errors(path):
        temporary.unlink(missing_ok=True)  # what a crash left there, or a link
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)


def write_json(path: Path, value: object) -> None:
    """Replace ``path`` by ``value`` as JSON in one step."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """``value`` as JSON for people to read too."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


class UnreadableError(ModelError):
    """A file may not be read, or the disk does not give it; what it holds may be sound."""


def cannot_read(path: Path, error: OSError) -> ModelError:
    """The error for a file that could not be read: `UnreadableError` where it may be sound all the same."""
    message = f"{path}: cannot read: {error.strerror}"
    if error.errno in _FORBIDDEN:
        return UnreadableError(message, "see that this user may read it and the folders above it")
    if error.errno not in _NO_FILE:
        return UnreadableError(message, "it may be sound: run the same command again when it can be read")
    return ModelError(message)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; a pipe or device, which might never end, is refused instead.

    Raises:
        OSError: If it cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not _is_regular(os.fstat(descriptor)):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def open_own(path: Path) -> TextIO:
    """Open a regular file for reading and appending, made when missing; text that is not UTF-8 is escaped.

    Raises:
        UsageError: If a link, a pipe or a device has that name: what is written would go elsewhere.
        OSError: If it cannot be opened.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.EISDIR or not os.path.lexists(path) or _is_regular(path.lstat()):
            raise
        raise _not_own(path) from error
    if not _is_regular(os.fstat(descriptor)):
        os.close(descriptor)
        raise _not_own(path)
    return os.fdopen(descriptor, "a+", encoding="utf-8", errors="backslashreplace")


def _is_regular(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode)


def _not_own(path: Path) -> UsageError:
    kind = f"a link to {path.readlink()}" if path.is_symlink() else "a pipe, a device or a socket"
    return UsageError(
        f"{path}: is {kind}, but only a file is written here", "remove it, or give it another name"
    )


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in ``path``.

    Raises:
        ModelError: If the file is missing, is not JSON or holds something other than an object.
        UnreadableError: If it is there and cannot be read.
    """
    try:
        with open_regular(path) as file:
            value = json.loads(file.read().decode("utf-8"))
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: holds {type(value).__name__}, not an object")
    return value


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it takes the place of ``target`` when the block ends well.

    A crash at any moment leaves the old ``target`` or the new one, or a leftover that ``recover`` removes.
    """
    temporary = target.with_name(f".{target.name}{_TEMPORARY}")
    with disk_errors(target):
        _clear(temporary)
        temporary.mkdir(parents=True)
    try:
        with disk_errors(target):
            yield temporary
            for path in sorted(temporary.rglob("*")):
                sync(path)
            sync(temporary)
            _put(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _put(temporary: Path, target: Path) -> None:
    replaced = target.with_name(f".{target.name}{_REPLACED}")
    if target.exists():
        _clear(replaced)
        target.replace(replaced)
    temporary.replace(target)
    sync(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete ``folder``; a crash midway cannot leave a part of it under its name."""
    rubbish = folder.with_name(f".{folder.name}{_RUBBISH}")
    _clear(rubbish)
    folder.replace(rubbish)
    shutil.rmtree(rubbish, ignore_errors=True)


def recover(parent: Path) -> None:
    """Clear what crashes left in ``parent``: unfinished and replaced folders, unfinished files."""
    for path in sorted(parent.glob(f".*{_REPLACED}")):
        original = path.with_name(path.name[1 : -len(_REPLACED)])
        if not original.exists():
            path.replace(original)
    for ending in (_TEMPORARY, _RUBBISH, _REPLACED):
        for path in parent.glob(f".*{ending}"):
            _clear(path)


def _clear(path: Path) -> None:
    """Remove what has this name; of a link the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def set_aside(folder: Path, ending: str) -> Path:
    """Rename ``folder`` to the first free of ``folder.<ending>``, ``folder.<ending>.2``, ...; return that."""
    moved = free_name(folder, ending)
    folder.replace(moved)
    return moved


def free_name(path: Path, ending: str) -> Path:
    """The first of ``path.<ending>``, ``path.<ending>.2``, ... that nothing has."""
    number = 1
    while os.path.lexists(
        free := path.with_name(f"{path.name}.{ending}" + (f".{number}" if number > 1 else ""))
    ):
        number += 1
    return free
