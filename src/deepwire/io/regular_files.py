"""Opening regular files alone, and locking them."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
from io import BufferedReader
from pathlib import Path
from typing import TextIO

from deepwire.errors import LogFn, ModelError, UsageError

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


def open_regular(path: Path) -> BufferedReader:
    """Opens a file for reading; an OSError for a pipe or device, which might never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """The content of a regular file; an OSError where it cannot be read, or is no regular file."""
    with open_regular(path) as file:
        return file.read()


def open_for_appending(path: Path) -> TextIO:
    """Opens a regular file for reading and appending, made when missing; text that is not UTF-8 is escaped.

    A UsageError where a link, a pipe or a device has that name: text would go elsewhere.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        there = os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode)
        if error.errno == errno.EISDIR or not there:
            raise
        raise _not_regular(path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return os.fdopen(descriptor, "a+", encoding="utf-8", errors="backslashreplace")


def _not_regular(path: Path) -> UsageError:
    kind = f"a link to {path.readlink()}" if path.is_symlink() else "a pipe, a device or a socket"
    return UsageError(
        f"{path}: is {kind}, but only a file is written here", "remove it, or give it another name"
    )


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in ``path``; a ModelError where there is none, or UnreadableError."""
    try:
        value = json.loads(read_regular(path).decode("utf-8"))
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: holds {type(value).__name__}, not an object")
    return value


def acquire_lock(path: Path, busy: LogFn) -> TextIO:
    """Locks the file ``path``, made when missing, for this process; it is free again when it is closed.

    Child processes that are forked meanwhile hold it too: it stays taken until the last of them has ended.
    The text of the file names the pid and the host of the holder. ``busy`` is called once with that text
    where another process holds the lock: it raises an error to give up, or the lock is waited for.
    """
    file = open_for_appending(path)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            busy(file.read().strip() or "another process")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"pid {os.getpid()} on host {socket.gethostname()}\n")
        file.flush()
    except BaseException:
        file.close()
        raise
    return file
