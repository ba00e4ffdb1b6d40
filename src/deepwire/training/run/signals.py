"""Signals, and what a program asks for, as wishes that the loop grants between two updates."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from deepwire.distributed.process_group import ProcessGroup

_ALWAYS = (signal.SIGTERM, signal.SIGINT)
# A closed terminal, and what batch systems send before they kill. They are like SIGTERM where they would end
# the process: `nohup` ignores the first, and a program around us may use the others for itself.
_WHERE_FATAL = (signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU)
_STOPPING = (*_ALWAYS, *_WHERE_FATAL)


class Signals:
    """While entered: SIGTERM and SIGINT ask to save and stop, SIGUSR1 to save; a second SIGINT stops at once.

    SIGHUP, SIGUSR2, SIGALRM and SIGXCPU are like SIGTERM unless they are ignored or handled already. A signal
    that reaches one process is a wish; by `settle` it becomes a decision of all.

    Args:
        listen: Whether to handle signals at all; where not, only `ask_to_stop` ends a run.

    Attributes:
        stop: The signal that ends the run; None while there was none.
        save: Whether a checkpoint was asked for.
        asked_to_stop: Whether the program has asked for the end of the run.
    """

    def __init__(self, *, listen: bool = True) -> None:
        self.listen = listen
        self.stop: signal.Signals | None = None
        self.save = self.asked_to_stop = self._asks_to_stop = False
        self._wanted: signal.Signals | None = None
        self._saves_wanted = self._saves_settled = 0
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Signals:
        # Python allows handlers in the main thread only; elsewhere the program around us has its own.
        if self.listen and threading.current_thread() is threading.main_thread():
            fatal = [number for number in _WHERE_FATAL if signal.getsignal(number) is signal.SIG_DFL]
            for number in (*_ALWAYS, signal.SIGUSR1, *fatal):
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
            self._saves_wanted += 1
        elif number == signal.SIGINT and self._wanted is not None:
            raise KeyboardInterrupt
        else:
            self._wanted = signal.Signals(number)

    def ask_to_stop(self) -> None:
        """Ask, from the program, for a checkpoint and the end of the run."""
        self._asks_to_stop = True

    @property
    def stop_wanted(self) -> bool:
        """Whether this process has been asked to stop."""
        return self._wanted is not None or self._asks_to_stop

    @property
    def stops(self) -> bool:
        """Whether all processes are to save and stop."""
        return self.stop is not None or self.asked_to_stop

    def settle(self, processes: ProcessGroup) -> None:
        """Make what any process was asked for the decision of all."""
        saves = self._saves_wanted
        wishes = [self._wanted == number for number in _STOPPING]
        own = [*wishes, saves > self._saves_settled, self._asks_to_stop]
        *stops, save, asked = processes.all_reduce_numbers(own)
        self._saves_settled = saves
        self.save = self.save or save > 0
        self.asked_to_stop = self.asked_to_stop or asked > 0
        if self.stop is None:
            self.stop = next((number for number, count in zip(_STOPPING, stops, strict=True) if count), None)

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended: 128 + its number; 0 without one."""
        return 128 + self.stop if self.stop is not None else 0
