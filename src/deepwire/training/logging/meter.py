"""What a line of the log holds: sums over the updates since the last one, on the device, and the pace."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from deepwire.errors import ModelError
from deepwire.training.optimizers.optimizer import StepResult


@dataclass(frozen=True)
class Averages:
    """What the log says of an interval.

    Attributes:
        loss: Smoothed loss per target token, nats.
        nll: Negative log-likelihood per target token, nats.
        gradient_norm: Mean norm of the gradient before clipping.
        tokens: Target tokens.
        tokens_per_second: Of the time spent in updates, without validation and saving.
        divergence: Distance of the two passes of R-Drop or SimCut per target token, nats; else None.
        alignment: Loss of guided alignment per target token, nats; else None.
    """

    loss: float
    nll: float
    gradient_norm: float
    tokens: int
    tokens_per_second: float
    divergence: float | None = None
    alignment: float | None = None

    @property
    def perplexity(self) -> float:
        """exp(nll); infinite where that is too large."""
        return perplexity(self.nll)


def perplexity(nll: float) -> float:
    """exp of a loss per token in nats; infinite where that is too large for a float."""
    return math.inf if nll >= 700 else math.exp(nll)  # of what is no number, neither


class Meter:
    """Adds up updates; those that were not finite are left out.

    Args:
        device: Where the losses are.
        divergence: Whether updates come with the divergence of two passes.
        alignment: Whether they come with the loss of guided alignment.
    """

    def __init__(self, device: torch.device, *, divergence: bool = False, alignment: bool = False) -> None:
        # loss, nll, tokens, gradient norm, updates, then the divergence and the loss of the alignment, if any
        self._names = ("divergence",) * divergence + ("alignment",) * alignment
        self._sums = torch.zeros(5 + len(self._names), dtype=torch.float64, device=device)
        self._finite: list[Tensor] = []
        self._seconds = 0.0
        self._since = time.perf_counter()

    def add(self, sums: Sequence[Tensor], tokens: int, step: StepResult) -> None:
        """Take in one update: sums of loss, nll (divergence, alignment) over target tokens; its step."""
        loss, nll, *rest = (total.double() for total in sums)
        count = torch.full_like(loss, tokens)
        row = torch.stack([loss, nll, count, step.norm.double(), torch.ones_like(count), *rest])
        self._sums += torch.where(step.finite, row, 0.0)
        self._finite.append(step.finite)
        now = time.perf_counter()
        self._seconds += now - self._since
        self._since = now

    def skip_time(self) -> None:
        """Do not count the time since the last update: it went into validation or saving."""
        self._since = time.perf_counter()

    def take_finite(self) -> list[bool]:
        """Whether each update since the last call was finite; waits for the device."""
        finite: list[bool] = torch.stack(self._finite).tolist() if self._finite else []
        self._finite.clear()
        return finite

    def averages(self) -> Averages:
        """The interval so far; waits for the device."""
        loss, nll, tokens, norm, updates, *rest = self._sums.tolist()
        per_token = 1 / tokens if tokens else math.nan
        seconds = max(self._seconds, 1e-9)
        return Averages(
            loss * per_token,
            nll * per_token,
            norm / updates if updates else math.nan,
            int(tokens),
            tokens / seconds,
            **{name: each * per_token for name, each in zip(self._names, rest, strict=True)},
        )

    def reset(self) -> None:
        """Begin a new interval."""
        self._sums.zero_()
        self._seconds = 0.0

    def state(self) -> list[float]:
        """The sums, for a checkpoint in the middle of an interval; waits for the device."""
        sums: list[float] = self._sums.tolist()
        return [*sums, self._seconds]

    def load_state(self, state: list[float]) -> None:
        """Continue an interval from what ``state`` gave.

        Raises:
            ModelError: If it has more or fewer sums.
        """
        if len(state) != len(self._sums) + 1:
            raise ModelError(f"the stored training state is damaged: {len(state)} sums of an interval")
        self._sums.copy_(torch.tensor(state[:-1], dtype=torch.float64))
        self._seconds = state[-1]


# Less says little about a machine; after as much processor time, waited for or had, a share is told.
_SECONDS = 5.0
# With one busy program beside two busy threads on two cores it is about a third.
_CROWDED = 0.2


class RemainingTime:
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


class ThreadContention:
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

    def warning(self) -> str | None:
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
