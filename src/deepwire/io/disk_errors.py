"""Full and read-only disks: what the system's error numbers mean, and errors of one line."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepwire.errors import ResourceError

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed for lack of room: of the disk, of the user's quota or of one file."""
    return error.errno in _DISK_FULL


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk under ``path`` into an error of one line.

    Raises:
        ResourceError: For every operating-system error while writing.
    """
    try:
        yield
    except OSError as error:
        hint = (
            "free some space and run the same command again"
            if is_disk_full(error)
            else "see that the folder can be written"
        )
        reason = error.strerror or " ".join(str(error).split())
        raise ResourceError(f"{path}: cannot write: {reason}", hint) from error


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


def human_bytes(count: float) -> str:
    """``count`` bytes as people read them: ``812 B``, ``3.1 GB`` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
