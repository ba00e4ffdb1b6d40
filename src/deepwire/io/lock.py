"""One process at a time: a lock file that the system releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from deepwire.io.regular_files import open_for_appending


def acquire_lock(path: Path, busy: Callable[[str], None]) -> TextIO:
    """Lock the file ``path``, made when missing, for this process; it is free again when it is closed.

    Child processes that are forked meanwhile hold it too: it stays taken until the last of them has ended.

    Args:
        path: The lock file; its text names the pid and the host of the holder.
        busy: Called once with that text where another process holds the lock. It raises an error to give up;
            if it returns, the lock is waited for.

    Raises:
        UsageError: If ``path`` is a link, a pipe or a device.
        OSError: If it cannot be opened or written.
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
