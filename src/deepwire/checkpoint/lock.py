"""One trainer for a run directory: a lock that the system releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepwire.checkpoint.files import disk_errors, open_own
from deepwire.errors import UsageError

LOCK = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run directory ``folder`` (made when missing) for this process.

    Raises:
        UsageError: If another process holds it; names its pid and host. Or if the lock is a link.
        ResourceError: If the folder cannot be made or written.
    """
    path = folder / LOCK
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = open_own(path)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise UsageError(
                f"{folder}: run directory is in use by {file.read().strip() or 'another process'}",
                "wait for it, stop it, or train in another directory with run=DIR",
            ) from error
        with disk_errors(path):
            file.truncate(0)
            file.write(f"pid {os.getpid()} on host {socket.gethostname()}\n")
            file.flush()
        yield
