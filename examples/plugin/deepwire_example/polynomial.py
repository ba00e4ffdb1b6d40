"""A learning rate that falls like a power of what is left of the run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deepwire.config.counts import Count, Positive
from deepwire.training.schedule import Schedule, ScheduleSection


class PolynomialConfig(ScheduleSection):
    """Linear warm-up, then peak (1 - t)^power, where t goes from 0 to 1 until the end of the run."""

    type: Literal["polynomial"] = "polynomial"
    peak: Positive = Field(default=1e-3, description="learning rate at the end of the warm-up")
    warmup: Count = Field(default=1000, ge=0, description="updates of linear warm-up")
    power: Positive = Field(default=1.0, description="1 falls along a line, 2 faster at first")

    def build(self, *, d_model: int, max_updates: int | None) -> Schedule:
        """The rate of each update, from 1."""
        del d_model
        end = self._end(max_updates)

        def rate(update: int) -> float:
            if update <= self.warmup:
                return self.peak * update / self.warmup
            left = max(0.0, (end - update) / (end - self.warmup))
            return float(self.peak * left**self.power)

        return rate

    def check(self, max_updates: int | None) -> None:
        """See that the run has an end, after the warm-up."""
        self._end(max_updates)

    @property
    def follows_length(self) -> bool:
        """A longer run falls more slowly."""
        return True

    def _end(self, max_updates: int | None) -> int:
        if max_updates is None or max_updates <= self.warmup:
            raise ValueError(f"schedule polynomial needs a max_updates beyond its warmup of {self.warmup}")
        return max_updates
