"""Signals as wishes that the loop grants between two updates."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Signals:
    """While entered: SIGTERM and SIGINT ask to save and stop, SIGUSR1 to save; a second SIGINT stops at once.

    Attributes:
        stop: The signal that asked to stop; None while there was none.
        save: Whether a checkpoint was asked for.
    """

    def __init__(self) -> None:
        self.stop: signal.Signals | None = None
        self.save = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Signals:
        # Python allows handlers in the main thread only; elsewhere the program around us has its own.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]  # it came from signal.signal
        self._before.clear()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.save = True
        elif number == signal.SIGINT and self.stop is not None:
            raise KeyboardInterrupt
        else:
            self.stop = signal.Signals(number)

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended: 128 + its number; 0 without one."""
        return 128 + self.stop if self.stop is not None else 0
