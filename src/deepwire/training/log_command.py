"""Records of a training for another program, as JSON lines on its standard input: for experiment trackers."""

from __future__ import annotations

import json
import queue
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping

from deepwire.errors import UsageError
from deepwire.training.loop import UpdateResult
from deepwire.training.session import Callback, TrainingSession
from deepwire.training.state import StopReason

_PATIENCE = 60.0
"""Seconds that the program gets to end after its last line."""


class LogCommand(Callback):
    """Starts a program and gives it every record of ``metrics.jsonl`` as it is written.

    The first line is ``{"kind": "begin", "run": ..., "update": ..., "settings": {...}}``, the last one
    ``{"kind": "end", "update": ..., "reason": ..., "finished": ...}``; between them are those of the file.
    Where a run is continued, the program is started anew and hears of what is written from then on.

    The program has a thread of its own to listen to, so a slow one does not slow training down. If it ends,
    a warning says so and training goes on: the file has everything. Ctrl-C does not reach it.

    Args:
        command: Split as a shell would, but given to no shell.

    Raises:
        UsageError: The program cannot be started.
    """

    def __init__(self, command: str) -> None:
        self.command, self._read = command, 0
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        try:
            # Its output goes where our messages go; in a session of its own it is spared our Ctrl-C.
            self._program = subprocess.Popen(
                shlex.split(command), stdin=subprocess.PIPE, stdout=2, text=True, start_new_session=True
            )
        except (OSError, ValueError, IndexError) as error:
            raise UsageError(f"--log-command {command!r}: {error}") from error
        self._writer = threading.Thread(target=self._write, name="log-command", daemon=True)
        self._writer.start()

    def on_start(self, session: TrainingSession) -> None:
        """Say which run begins, or goes on."""
        metrics = session.training.spec.run.metrics
        self._read = metrics.stat().st_size if metrics.exists() else 0
        settings = session.training.spec.resolved
        self._tell({"kind": "begin", "run": str(session.run), "update": session.update, "settings": settings})

    def after_update(self, session: TrainingSession, update: UpdateResult) -> None:  # noqa: ARG002 - the contract
        """Pass on what was recorded since."""
        self._pass_on(session)

    def on_end(self, session: TrainingSession, stop_reason: StopReason) -> None:
        """Pass on the rest, and why training ended."""
        self._pass_on(session)
        finished = stop_reason.finished
        self._tell(
            {"kind": "end", "update": session.update, "reason": stop_reason.reason, "finished": finished}
        )

    def _tell(self, record: Mapping[str, object]) -> None:
        self._lines.put(json.dumps(record, ensure_ascii=False))

    def close(self) -> None:
        """End the lines, and wait for the program."""
        self._lines.put(None)
        self._writer.join(_PATIENCE)
        try:
            code = self._program.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            _warn(f"{self.command}: still runs a minute after its last line, and is left alone")
            return
        if code:
            _warn(f"{self.command}: ended with {code}; all records are in metrics.jsonl")

    def _pass_on(self, session: TrainingSession) -> None:
        metrics = session.training.spec.run.metrics
        if not metrics.exists() or metrics.stat().st_size <= self._read:
            return
        with metrics.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode("utf-8").splitlines():
            self._lines.put(line)

    def _write(self) -> None:
        """Write lines until the end, or until nobody reads them."""
        stream = self._program.stdin
        assert stream is not None, "it was asked for"
        try:
            while (line := self._lines.get()) is not None:
                stream.write(f"{line}\n")
                stream.flush()
            stream.close()
        except OSError:
            _warn(f"{self.command}: reads no more; training goes on, all records are in metrics.jsonl")


def _warn(text: str) -> None:
    print(f"warning: --log-command {text}", file=sys.stderr)
