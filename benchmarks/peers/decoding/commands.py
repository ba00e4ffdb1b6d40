"""Running the commands of toolkits: what one prints, and what it takes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_SHOWN = 3000


class Took(NamedTuple):
    """Seconds, and CPU seconds of a command and of all that it started."""

    seconds: float
    cpu_seconds: float


def difference(less: Took, more: Took) -> Took:
    return Took(more.seconds - less.seconds, more.cpu_seconds - less.cpu_seconds)


def timed(command: Sequence[str], text: Path, log: Path, folder: Path) -> Took:
    """Run a command in `folder` that reads `text`; what it prints comes into `log`."""
    errors = folder / "errors.txt"
    begun = time.perf_counter()
    with text.open() as lines, log.open("w") as output, errors.open("w") as complaints:
        process = subprocess.Popen(command, stdin=lines, stdout=output, stderr=complaints, cwd=folder)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            # Interrupted or told to end: a run left behind would slow whatever comes next.
            process.kill()
            raise
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    _require_success(command, process.returncode, errors.read_text(errors="replace"))
    return Took(seconds, usage.ru_utime + usage.ru_stime)


def printed(command: Sequence[str], folder: Path) -> str:
    """What a command that is run in `folder` writes to either output."""
    run = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        check=False,
    )
    _require_success(command, run.returncode, run.stdout)
    return run.stdout


def _require_success(command: Sequence[str], status: int, said: str) -> None:
    """End this program, showing the last that a command said, if it failed."""
    if status:
        sys.exit(f"error: {' '.join(command)} failed (status {status}):\n{said[-_SHOWN:]}")
