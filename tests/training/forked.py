"""``deepwire`` in forked processes, which start at once because torch is imported already.

The imports that a command needs for itself are not seen this way: some tests call ``python -m deepwire``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile

import torch

# What the forked processes need is imported once, here.
import deepwire.api.training
import deepwire.cli.evaluate
import deepwire.cli.score
import deepwire.cli.train
import deepwire.decoding.translator
import deepwire.evaluation.metric_choice
import deepwire.runfile
import deepwire.training.session  # noqa: F401
from deepwire.cli.main import main


def fork(work: Callable[[], int]) -> int:
    """Do this in a child process, which ends with the exit code that it gives; gives the process id."""
    child = os.fork()
    if child:
        return child
    code: object = 99
    try:
        torch.set_num_threads(1)
        code = work()
    except SystemExit as end:
        code = end.code
    finally:
        os._exit(code if isinstance(code, int) else 98)


def begin(
    *arguments: str, cwd: Path, stdin: int, stdout: int, stderr: int, others: Sequence[int] = ()
) -> int:
    """Start a command on these open files; gives the process id. It does not keep the `others`."""

    def work() -> int:
        os.chdir(cwd)
        for number, file in enumerate((stdin, stdout, stderr)):
            os.dup2(file, number)
        for file in (stdin, stdout, stderr, *others):
            os.close(file)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, closefd=False)  # noqa: SIM115 - they have no path, and stay open
            for number, mode in enumerate("rww")
        )
        code = main(arguments)
        sys.stderr.flush()
        return code

    return fork(work)


def deepwire_command(*arguments: str, cwd: Path, stdin: str = "") -> CompletedProcess[str]:
    """Run a command to its end."""
    with TemporaryFile() as text, TemporaryFile() as output, TemporaryFile() as errors:
        text.write(stdin.encode())
        text.seek(0)
        child = begin(
            *arguments, cwd=cwd, stdin=text.fileno(), stdout=output.fileno(), stderr=errors.fileno()
        )
        status = os.waitpid(child, 0)[1]
        output.seek(0)
        errors.seek(0)
        said = output.read().decode(), errors.read().decode()
    return CompletedProcess(arguments, os.waitstatus_to_exitcode(status), *said)


class Piped:
    """A running command with a pipe at each of its three ends, like a `subprocess.Popen`."""

    def __init__(self, *arguments: str) -> None:
        (stdin, ours), (out, stdout), (error, stderr) = os.pipe(), os.pipe(), os.pipe()
        theirs = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        self._code: int | None = None
        self._child = begin(*arguments, cwd=Path.cwd(), **theirs, others=(ours, out, error))
        for file in theirs.values():
            os.close(file)
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(ours, "wb"),
            os.fdopen(out, "rb"),
            os.fdopen(error, "rb"),
        )

    def poll(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        if self._code is None:
            ended, status = os.waitpid(self._child, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop, if it still runs."""
        if self.poll() is None:
            os.kill(self._child, number)

    def wait(self, seconds: float) -> int:
        """The exit code; `TimeoutError` if it still runs after the time, and it is killed."""
        deadline = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                os.kill(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)
                raise TimeoutError(f"still running after {seconds} s")
            time.sleep(0.005)
        return code
