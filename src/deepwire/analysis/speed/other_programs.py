"""Other programs that translate, run as their users run them: source on stdin, translations on stdout."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from deepwire.errors import UsageError

_SHOWN = 200
# What libraries of linear algebra and of threads read when a program starts.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Program:
    """A command that translates.

    Attributes:
        name: As in tables.
        command: Program and arguments; no shell reads them.
        threads: For how many CPU threads its environment asks; None leaves the environment as it is.
    """

    name: str
    command: tuple[str, ...]
    threads: int | None = None

    @classmethod
    def parse(cls, text: str, threads: int | None = None) -> Program:
        """Read ``NAME=COMMAND``; words of the command are quoted as in a shell.

        Raises:
            UsageError: A part is missing, or a quotation mark.
        """
        name, _, command = text.partition("=")
        hint = "write --beside 'NAME=program --option', and NAME='sh -c \"...\"' for pipes"
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise UsageError(f"--beside: {text!r}: {error}", hint) from None
        if not name.strip() or not words:
            raise UsageError(f"--beside: {text!r} is not NAME=COMMAND", hint)
        return cls(name.strip(), words, threads)

    @property
    def written(self) -> str:
        """Name and command in one line."""
        return f"{self.name}={shlex.join(self.command)}"

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Start the program, give it the lines and read as many.

        Raises:
            UsageError: It does not start, fails, or gives another number of lines.
        """
        asked = {} if self.threads is None else dict.fromkeys(_THREADS, str(self.threads))
        try:
            done = subprocess.run(
                self.command,
                input="".join(f"{line}\n" for line in lines).encode(),
                capture_output=True,
                env=os.environ | asked,
                check=False,
            )
        except OSError as error:
            raise UsageError(
                f"--beside {self.name}: {self.command[0]}: {error.strerror or error}",
                "give the path of a program that can be run",
            ) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise UsageError(
                f"--beside {self.name}: the command failed ({_status(done.returncode)}): {said[-1][:_SHOWN]}",
                f"try it alone: {shlex.join(self.command)}",
            )
        lines_out = done.stdout.decode(errors="replace").split("\n")
        lines_out = lines_out[:-1] if lines_out[-1] == "" else lines_out
        if len(lines_out) != len(lines):
            raise UsageError(
                f"--beside {self.name}: the command gave {len(lines_out)} lines for {len(lines)}",
                "it must write one line to stdout for each line on stdin, and nothing else",
            )
        return lines_out


def _status(code: int) -> str:
    return f"exit status {code}" if code > 0 else f"signal {-code}"
