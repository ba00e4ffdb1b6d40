"""A process and all that it started, as Linux counts them: CPU time and memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def processes(root: int) -> Iterator[int]:
    """A process and its descendants, as far as they are still there."""
    yield root
    # Of every thread those that it started: proc_pid_task_children(5).
    for started in Path(f"/proc/{root}/task").glob("*/children"):
        with suppress(OSError):
            for child in started.read_text().split():
                yield from processes(int(child))


def cpu_seconds(root: int) -> float:
    """CPU time of all of them, those that have ended too."""
    ticks = 0
    for process in processes(root):
        with suppress(OSError):
            # Behind the name, in brackets: ..., utime, stime, cutime, cstime (proc_pid_stat(5)).
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(root: int) -> int:
    """Bytes in memory of all of them; what several share counts once."""
    found = 0
    for process in processes(root):
        with suppress(OSError):
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
            found += 1024 * int(re.findall(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)[0])
    return found
