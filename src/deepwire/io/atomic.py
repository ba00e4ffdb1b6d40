"""Writing files and folders that a crash cannot leave half done, with errors of one line for full disks."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn

from deepwire.errors import ResourceError, UsageError

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_IMPOSSIBLE_NAME = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG})


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed for lack of room: of the disk, of the user's quota or of one file."""
    return error.errno in _DISK_FULL


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns an error of writing ``path`` into a UsageError for its name or rights, else a ResourceError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FORBIDDEN:
            raise UsageError(
                f"{path}: cannot write: {error.strerror}",
                "see that the folder can be written, or name another",
            ) from error
        if error.errno in _IMPOSSIBLE_NAME:
            raise UsageError(f"{path}: cannot be made: {error.strerror}", "name another path") from error
        hint = (
            "free some space and run the same command again"
            if is_disk_full(error)
            else "see that the folder is there and its disk works"
        )
        reason = error.strerror or " ".join(str(error).split())
        raise ResourceError(f"{path}: cannot write: {reason}", hint) from error


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """While entered, SIGTERM and SIGHUP end the process as Ctrl-C does: what is half made is removed.

    One that is ignored or handled stays so (`nohup`, training). Only the main thread can handle signals.
    """
    numbers = (signal.SIGTERM, signal.SIGHUP)
    plain = threading.current_thread() is threading.main_thread()
    handled = [number for number in numbers if plain and signal.getsignal(number) == signal.SIG_DFL]
    for number in handled:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def require_space(folder: Path, needed: int) -> None:
    """Raises a ResourceError where a write of ``needed`` bytes cannot fit on the disk of ``folder``."""
    from rich.filesize import decimal

    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            f"{folder}: a write needs {decimal(needed)}, but only {decimal(free)} are free",
            "free some space and run the same command again; what was saved before is intact",
        )


_TEMPORARY = ".tmp"
_REPLACED = ".old"
_RUBBISH = ".delete"


def sync(path: Path) -> None:
    """Wait until a file or folder has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a new file to fill, which takes the place and permissions of ``path`` when the block ends well.

    Readers see the old file or the new one. A crash at any moment leaves one of these, and perhaps a leftover
    that the next call removes.
    """
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    flags, first_mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else mode
    with disk_errors(path):
        temporary, descriptor = _unfinished(path, lambda name: os.open(name, flags, first_mode))
    try:
        with os.fdopen(descriptor, "wb") as raw:
            yield raw
            raw.flush()
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        temporary.replace(path)
        sync(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in one step: readers see the old file or the new one."""
    with disk_errors(path), replacing(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: object) -> None:
    """Replace ``path`` by ``value`` as JSON in one step."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """``value`` as JSON for people to read too."""
    import json  # late: every command imports this module, also one that only shows its help

    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def require_absent(path: Path, instead: str = "name another folder") -> None:
    """Raises a UsageError where something is at ``path``; ``instead`` is advice besides removing it."""
    if os.path.lexists(path):
        raise UsageError(f"{path}: exists already", f"{instead}, or remove it first")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it takes the place of ``target`` when the block ends well.

    A crash at any moment leaves the old ``target`` or the new one, or a leftover that the next call removes.
    """
    with disk_errors(target), unwound_by_signals(), ExitStack() as stack:

        def make(name: Path) -> int:
            name.mkdir(parents=True)
            return os.open(name, os.O_RDONLY)

        temporary, descriptor = _unfinished(target, make)
        stack.callback(os.close, descriptor)
        try:
            yield temporary
            for path in sorted(temporary.rglob("*")):
                sync(path)
            sync(temporary)
            _put(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _unfinished(target: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """Make what becomes ``target`` beside it, under a name of its own, as several may; its name, opened.

    It is locked (flock), so what killed processes left under such names is removed here.
    """
    for path in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}{_TEMPORARY}"):
        with suppress(OSError), ExitStack() as stack:
            stack.callback(os.close, descriptor := os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(path)
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_TEMPORARY}")
        descriptor = make(path)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if path.exists():
            return path, descriptor
        os.close(descriptor)  # before it was locked, another process took it for a leftover


def _put(temporary: Path, target: Path) -> None:
    replaced = target.with_name(f".{target.name}{_REPLACED}")
    if target.exists():
        _clear(replaced)
        target.replace(replaced)
    temporary.replace(target)
    sync(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete ``folder``, or what a crash midway left of it, which is nothing under its name."""
    rubbish = folder.with_name(f".{folder.name}{_RUBBISH}")
    _clear(rubbish)
    if folder.exists():
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
    elif os.path.lexists(path):  # else nothing is written: the disk may be for reading alone
        path.unlink(missing_ok=True)


def move_aside(path: Path, suffix: str = "") -> Path:
    """Rename ``path`` to a free name, see `free_name`, and return that."""
    moved = free_name(path, suffix)
    path.replace(moved)
    return moved


def free_name(path: Path, suffix: str = "") -> Path:
    """The first of ``path.1``, ``path.2`` and so on that nothing has, not even a link.

    With a suffix such as ``damaged`` the names are ``path.damaged``, ``path.damaged.2`` and so on.
    """
    names = (f"{suffix}.{number}".removeprefix(".") for number in count(2 if suffix else 1))
    candidates = (path.with_name(f"{path.name}.{name}") for name in chain([suffix] if suffix else [], names))
    return next(candidate for candidate in candidates if not os.path.lexists(candidate))
