"""Sums over the updates since the last line of the log, kept on the device so that no step waits for it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepwire.errors import ModelError
from deepwire.training.optimizer import StepResult


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
    """

    loss: float
    nll: float
    gradient_norm: float
    tokens: int
    tokens_per_second: float
    divergence: float | None = None

    @property
    def perplexity(self) -> float:
        """exp(nll); infinite where that is too large."""
        return perplexity(self.nll)


def perplexity(nll: float) -> float:
    """exp of a loss per token in nats; infinite where that is too large for a float."""
    return math.exp(nll) if nll < 700 else math.inf


class Meter:
    """Adds up updates; those that were not finite are left out.

    Args:
        device: Where the losses are.
        divergence: Whether updates come with the divergence of two passes.
    """

    def __init__(self, device: torch.device, *, divergence: bool = False) -> None:
        # loss, nll, tokens, gradient norm, updates, and the divergence if there is one
        self._sums = torch.zeros(5 + divergence, dtype=torch.float64, device=device)
        self._verdicts: list[Tensor] = []
        self._seconds = 0.0
        self._since = time.perf_counter()

    def add(self, sums: Sequence[Tensor], tokens: int, step: StepResult) -> None:
        """Take in one update: sums of loss, nll (and divergence) over target tokens, nats; its step."""
        loss, nll, *rest = (total.double() for total in sums)
        count = torch.full_like(loss, tokens)
        row = torch.stack([loss, nll, count, step.norm.double(), torch.ones_like(count), *rest])
        self._sums += torch.where(step.finite, row, 0.0)
        self._verdicts.append(step.finite)
        now = time.perf_counter()
        self._seconds += now - self._since
        self._since = now

    def skip_time(self) -> None:
        """Do not count the time since the last update: it went into validation or saving."""
        self._since = time.perf_counter()

    def take_verdicts(self) -> list[bool]:
        """Whether each update since the last call was finite; waits for the device."""
        verdicts: list[bool] = torch.stack(self._verdicts).tolist() if self._verdicts else []
        self._verdicts.clear()
        return verdicts

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
            rest[0] * per_token if rest else None,
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
