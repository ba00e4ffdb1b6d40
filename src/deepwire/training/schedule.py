"""Learning rates: functions from the number of an update (from 1) to the rate it is made with."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from deepwire.config.choice import Choice, ChoiceTable, by_name_or
from deepwire.config.counts import Count, Positive
from deepwire.config.section import UnusedSettings
from deepwire.plugins import Kind

Schedule = Callable[[int], float]


class ScheduleSection(Choice, ABC):
    """Base of a schedule's settings: what every one answers, so that nobody else needs to know which."""

    kind: ClassVar[Kind] = "schedule"

    @abstractmethod
    def build(self, *, d_model: int, max_updates: int | None) -> Schedule:
        """The rates of a run.

        Args:
            d_model: Width of the model, which the Noam schedule scales with.
            max_updates: Length of the run, which cosine and wsd end at unless they have their own length.

        Raises:
            ValueError: As in `check`.
        """

    def check(self, max_updates: int | None) -> None:
        """Refuse a length that the schedule cannot have.

        Raises:
            ValueError: The schedule has no end and needs one, or falls before the end of its warm-up.
        """

    def warmup_in(self, max_updates: int | None) -> int:
        """Updates until the rate reaches its peak: the setting ``warmup`` as a rule, 0 without one."""
        return int(getattr(self, "warmup", 0))

    def unused_settings(self) -> UnusedSettings:
        """Where a warm-up begins that there is not."""
        if "initial" in type(self).model_fields and not getattr(self, "warmup", 0):
            yield "initial", "there is no warm-up with warmup: 0"

    @property
    def follows_length(self) -> bool:
        """Whether a run of another length has other rates in its first updates.

        One with a setting ``updates`` does unless that gives it a length of its own.
        """
        return getattr(self, "updates", 0) is None

    def shortened(self, updates: int, of: int) -> dict[str, int]:
        """The constants that count updates, for a run of ``updates`` updates in place of ``of``."""
        counts = {name: getattr(self, name, None) for name in ("warmup", "updates")}
        return {name: max(1, round(count * updates / of)) for name, count in counts.items() if count}


class InverseSqrtConfig(ScheduleSection):
    """Linear warm-up, then proportional to 1/sqrt(update), as fairseq counts it."""

    type: Literal["inverse_sqrt"] = "inverse_sqrt"
    peak: Positive = Field(default=1e-3, description="learning rate at the end of the warm-up")
    warmup: Count = Field(default=2000, ge=0, description="updates of linear warm-up")
    initial: float = Field(default=1e-7, ge=0, description="learning rate of the first update")

    def build(self, *, d_model: int, max_updates: int | None) -> Schedule:
        """Linear from ``initial`` to ``peak`` over the warm-up, then ``peak * sqrt(warmup / n)``.

        ``n = update - 1`` updates are finished when this one is made; fairseq counts the same way.
        """

        def rate(update: int) -> float:
            finished = update - 1
            if finished < self.warmup:
                return _linear(self.initial, self.peak, finished, self.warmup)
            return self.peak * math.sqrt(max(self.warmup, 1) / max(finished, 1))

        return rate


class NoamConfig(ScheduleSection):
    """scale * d_model^-0.5 * min(u^-0.5, u * warmup^-1.5) (Vaswani et al. 2017, eq. 3)."""

    type: Literal["noam"] = "noam"
    scale: Positive = Field(default=1.0, description="factor of the whole curve")
    warmup: Count = Field(default=4000, ge=1, description="updates of linear warm-up")

    def build(self, *, d_model: int, max_updates: int | None) -> Schedule:
        """``scale * d_model^-0.5 * min(u^-0.5, u * warmup^-1.5)`` (Vaswani et al. 2017, eq. 3)."""

        def rate(update: int) -> float:
            least = min(1 / math.sqrt(update), update / math.sqrt(self.warmup) ** 3)
            return self.scale / math.sqrt(d_model) * least

        return rate


class CosineConfig(ScheduleSection):
    """Linear warm-up, then half a cosine down to ``minimum`` (Loshchilov and Hutter 2017)."""

    type: Literal["cosine"] = "cosine"
    peak: Positive = Field(default=1e-3, description="learning rate at the end of the warm-up")
    warmup: Count = Field(default=1000, ge=0, description="updates of linear warm-up")
    initial: float = Field(default=0.0, ge=0, description="learning rate that the warm-up starts from")
    minimum: float = Field(default=0.0, ge=0, description="learning rate at the end")
    updates: Count | None = Field(
        default=None, ge=1, description="updates until the minimum; default: training.max_updates"
    )

    def build(self, *, d_model: int, max_updates: int | None) -> Schedule:
        """Linear warm-up, then half a cosine from ``peak`` at its end to ``minimum`` at the last update."""
        end, warmup = self._end(max_updates), self.warmup_in(max_updates)

        def rate(update: int) -> float:
            if update <= warmup:
                return _linear(self.initial, self.peak, update, warmup)
            done = min(1.0, (update - warmup) / (end - warmup))
            return self.minimum + (self.peak - self.minimum) * 0.5 * (1 + math.cos(math.pi * done))

        return rate

    def check(self, max_updates: int | None) -> None:
        """There must be an end, after the warm-up, and nothing behind it that learns nothing."""
        _require_no_rest(self._end(max_updates), max_updates, self.minimum)

    def warmup_in(self, max_updates: int | None) -> int:
        """At most a tenth of a run that the schedule follows and that ends before its warm-up does."""
        return _fitting(self.warmup, self.updates, max_updates, 0)

    def _end(self, max_updates: int | None) -> int:
        return _end("cosine", self.updates, max_updates, self.warmup)


class WarmupStableDecayConfig(ScheduleSection):
    """Linear warm-up, one value, then a decay over the last part of the run.

    Hu et al. 2024 (MiniCPM), section 4; the forms of the decay are those that Haegele et al. 2024 (Scaling
    Laws and Compute-Optimal Training Beyond Fixed Training Durations) compare.
    """

    type: Literal["wsd"] = "wsd"
    peak: Positive = Field(default=1e-3, description="learning rate between warm-up and decay")
    warmup: Count = Field(default=1000, ge=0, description="updates of linear warm-up")
    initial: float = Field(default=0.0, ge=0, description="learning rate that the warm-up starts from")
    minimum: float = Field(default=0.0, ge=0, description="learning rate at the end")
    decay: float = Field(default=0.2, gt=0, lt=1, description="share of the updates that the decay takes")
    form: Literal["linear", "1-sqrt", "cosine"] = Field(
        default="1-sqrt", description="the rate falls like 1 - t, 1 - sqrt(t) or half a cosine"
    )
    updates: Count | None = Field(
        default=None, ge=1, description="updates until the minimum; default: training.max_updates"
    )

    def build(self, *, d_model: int, max_updates: int | None) -> Schedule:
        """Linear warm-up, then ``peak`` to the first of the bounds, and down to ``minimum`` at the second."""
        (begin, end), warmup = self.bounds(max_updates), self.warmup_in(max_updates)

        def rate(update: int) -> float:
            if update <= warmup:
                return _linear(self.initial, self.peak, update, warmup)
            done = min(1.0, max(0.0, (update - begin) / (end - begin)))
            left = {
                "linear": 1 - done,
                "1-sqrt": 1 - math.sqrt(done),
                "cosine": 0.5 * (1 + math.cos(math.pi * done)),
            }
            return self.minimum + (self.peak - self.minimum) * left[self.form]

        return rate

    def check(self, max_updates: int | None) -> None:
        """The decay must begin after the warm-up and end, with nothing behind it that learns nothing."""
        _require_no_rest(self.bounds(max_updates)[1], max_updates, self.minimum)

    def warmup_in(self, max_updates: int | None) -> int:
        """At most a tenth of a run that the schedule follows and that decays before its warm-up ends."""
        return _fitting(self.warmup, self.updates, max_updates, self.decay)

    def bounds(self, max_updates: int | None) -> tuple[int, int]:
        """The last update before the decay, and the one at which the rate reaches its minimum.

        Raises:
            ValueError: There is no end, or the decay begins within the warm-up.
        """
        end = _end("wsd", self.updates, max_updates, self.warmup)
        begin = _last_at_peak(end, self.decay)
        if begin < self.warmup_in(max_updates):
            raise ValueError(
                f"schedule.decay {self.decay:g} of {end} updates begins at update {begin}, but "
                f"schedule.warmup lasts {self.warmup} updates: make one of them shorter, such as "
                f"training.schedule.warmup={min(begin, end // 10)}"
            )
        return begin, end


class ConstantConfig(ScheduleSection):
    """Linear warm-up, then one value."""

    type: Literal["constant"] = "constant"
    peak: Positive = Field(default=3e-4, description="the learning rate")
    warmup: Count = Field(default=0, ge=0, description="updates of linear warm-up")
    initial: float = Field(default=0.0, ge=0, description="learning rate that the warm-up starts from")

    def build(self, *, d_model: int, max_updates: int | None) -> Schedule:
        """Linear from ``initial`` to ``peak`` over the warm-up, then ``peak``."""

        def rate(update: int) -> float:
            if update <= self.warmup:
                return _linear(self.initial, self.peak, update, self.warmup)
            return self.peak

        return rate


def _end(schedule: str, updates: int | None, max_updates: int | None, warmup: int) -> int:
    end = updates or max_updates
    if end is None:
        raise ValueError(f"the {schedule} schedule needs schedule.updates where max_updates is not set")
    if updates is not None and end <= warmup:
        raise ValueError(
            f"schedule.updates is {end}, where the {schedule} ends, but schedule.warmup lasts {warmup} "
            f"updates: make the warm-up shorter, such as training.schedule.warmup={end // 10}"
        )
    return end


def _last_at_peak(end: int, decay: float) -> int:
    return min(end - 1, round(end * (1 - decay)))


def _fitting(warmup: int, updates: int | None, max_updates: int | None, decay: float) -> int:
    """The warm-up that a run has room for; a schedule with its own length says what it is."""
    if updates is not None or max_updates is None:
        return warmup
    last = _last_at_peak(max_updates, decay)
    return warmup if warmup <= last else min(last, max_updates // 10)


def _require_no_rest(end: int, max_updates: int | None, minimum: float) -> None:
    if max_updates is not None and end < max_updates and not minimum:
        raise ValueError(
            f"schedule.updates is {end}, where the rate is 0, and max_updates is {max_updates}: the rest "
            "would learn nothing; make max_updates smaller, or set schedule.minimum"
        )


SCHEDULES = ChoiceTable(
    ScheduleSection, [InverseSqrtConfig, NoamConfig, CosineConfig, WarmupStableDecayConfig, ConstantConfig]
)

ScheduleConfig = Annotated[ScheduleSection, by_name_or("inverse_sqrt")]
"""A schedule section: a plain string stands for its type; a section without a type is `inverse_sqrt`."""


def _linear(start: float, end: float, position: int, length: int) -> float:
    return start + (end - start) * position / length
