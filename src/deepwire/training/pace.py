"""How fast a run comes forward, and whether it could do better on this machine as it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Less says little about a machine; after as much processor time, waited for or had, a share is told.
_SECONDS = 5.0
# With one busy program beside two busy threads on two cores it is about a third.
_CROWDED = 0.2


class Pace:
    """How long the rest of a run takes, by its later updates.

    The first of a process are slow: kernels are chosen, memory is asked for. So the pace is that of the last
    half to three quarters of the updates that this process has made, validation and saving included.

    Args:
        clock: Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._updates = 0
        self._since: tuple[float, float] | None = None
        self._next: tuple[float, float] | None = None

    def passed(self, share: float) -> None:
        """Take note of an update, after which this share of the run is done."""
        self._updates += 1
        if self._updates & (self._updates - 1) == 0:  # 1, 2, 4, 8, ...
            self._since, self._next = self._next, (share, self._clock())

    def seconds_left(self, share: float) -> float | None:
        """Until the end, where this share is done by now; None while nobody knows."""
        if self._since is None or share <= self._since[0]:
            return None
        return (1 - share) / (share - self._since[0]) * (self._clock() - self._since[1])


class CoreTime(NamedTuple):
    """Seconds that the threads of this process have had a core, and have waited for one to be free."""

    had: float
    waited: float

    @classmethod
    def now(cls) -> CoreTime | None:
        """Until now; None where the system does not tell (it is Linux that does)."""
        had = waited = 0
        try:
            for path in Path("/proc/self/task").glob("*/schedstat"):
                numbers = path.read_text().split()
                had, waited = had + int(numbers[0]), waited + int(numbers[1])
        except (OSError, ValueError, IndexError):  # a thread has just ended, or it is another system
            return None
        return cls(had / 1e9, waited / 1e9) if had else None


class Crowding:
    """Notices once that the threads of a run wait for cores which other programs have.

    Threads that share an operation wait for the slowest of them, and keep their cores busy meanwhile, so that
    on a crowded machine several can be slower than one.

    Args:
        threads: That compute together.
        enough: Seconds of processor time after which a share is told.
        core_time: Tells the time that the threads have had and waited.
    """

    def __init__(
        self,
        threads: int,
        enough: float = _SECONDS,
        core_time: Callable[[], CoreTime | None] = CoreTime.now,
    ) -> None:
        self._threads, self._enough, self._core_time = threads, enough, core_time
        self._before = core_time() if threads > 1 else None

    def noticed(self) -> str | None:
        """What to tell the user; None while there is nothing to tell, and after it was told."""
        if self._before is None:
            return None
        now = self._core_time()
        if now is None:
            return None
        had, waited = now.had - self._before.had, now.waited - self._before.waited
        if had + waited < self._enough:
            return None
        self._before = now
        share = waited / (had + waited)
        if share < _CROWDED:
            return None
        self._before = None
        return (
            f"the {self._threads} threads of this run wait for a free core {share:.0%} of their time, "
            "because other programs use this machine too; with training.threads=1 it may be faster"
        )
