"""Learning rates: functions from the number of an update (from 1) to the rate it is made with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from deepwire.config.choice import by_name_or
from deepwire.config.counts import Count, Positive
from deepwire.config.section import Section, UnusedSettings

Schedule = Callable[[int], float]


class InverseSqrtConfig(Section):
    """Linear warm-up, then proportional to 1/sqrt(update), as fairseq counts it."""

    type: Literal["inverse_sqrt"] = "inverse_sqrt"
    peak: Positive = Field(default=1e-3, description="learning rate at the end of the warm-up")
    warmup: Count = Field(default=2000, ge=0, description="updates of linear warm-up")
    initial: float = Field(default=1e-7, ge=0, description="learning rate of the first update")

    def unused_settings(self) -> UnusedSettings:
        """Where a warm-up begins that there is not."""
        return _of_warmup(self.warmup)


class NoamConfig(Section):
    """scale * d_model^-0.5 * min(u^-0.5, u * warmup^-1.5) (Vaswani et al. 2017, eq. 3)."""

    type: Literal["noam"] = "noam"
    scale: Positive = Field(default=1.0, description="factor of the whole curve")
    warmup: Count = Field(default=4000, ge=1, description="updates of linear warm-up")


class CosineConfig(Section):
    """Linear warm-up, then half a cosine down to ``minimum`` (Loshchilov and Hutter 2017)."""

    type: Literal["cosine"] = "cosine"
    peak: Positive = Field(default=1e-3, description="learning rate at the end of the warm-up")
    warmup: Count = Field(default=1000, ge=0, description="updates of linear warm-up")
    initial: float = Field(default=0.0, ge=0, description="learning rate that the warm-up starts from")
    minimum: float = Field(default=0.0, ge=0, description="learning rate at the end")
    updates: Count | None = Field(
        default=None, ge=1, description="updates until the minimum; default: training.max_updates"
    )

    def unused_settings(self) -> UnusedSettings:
        """Where a warm-up begins that there is not."""
        return _of_warmup(self.warmup)

    def end(self, max_updates: int | None) -> int:
        """The update at which the rate reaches its minimum.

        Raises:
            ValueError: There is none, or it lies within the warm-up.
        """
        return _end("cosine", self.updates, max_updates, self.warmup)


class WarmupStableDecayConfig(Section):
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

    def unused_settings(self) -> UnusedSettings:
        """Where a warm-up begins that there is not."""
        return _of_warmup(self.warmup)

    def bounds(self, max_updates: int | None) -> tuple[int, int]:
        """The last update before the decay, and the one at which the rate reaches its minimum.

        Raises:
            ValueError: There is no end, or the decay begins within the warm-up.
        """
        end = _end("wsd", self.updates, max_updates, self.warmup)
        begin = min(end - 1, round(end * (1 - self.decay)))
        if begin < self.warmup:
            raise ValueError(
                f"schedule.decay {self.decay:g} of {end} updates begins at update {begin}, but "
                f"schedule.warmup lasts {self.warmup} updates: make one of them shorter"
            )
        return begin, end

    def require_same_rates(self, made: int, before: int | None, now: int | None) -> None:
        """See that updates that were made have the learning rates of a run of the present length.

        Args:
            made: Updates that were made.
            before, now: ``max_updates`` of the run that made them, and of the one that goes on.

        Raises:
            ValueError: They have not, as one of the two had begun to decay.
        """
        (begun, _), (begins, _) = self.bounds(before), self.bounds(now)
        if begun == begins or made <= min(begun, begins):
            return
        why = (
            f"the decay of schedule wsd began after update {begun}"
            if begun < made
            else f"the decay of schedule wsd would have begun after update {begins}"
        )
        raise ValueError(
            f"training.max_updates: {before} -> {now}: {why}, and this run is at update {made}, so that its "
            "last updates would have had other learning rates"
        )


class ConstantConfig(Section):
    """Linear warm-up, then one value."""

    type: Literal["constant"] = "constant"
    peak: Positive = Field(default=3e-4, description="the learning rate")
    warmup: Count = Field(default=0, ge=0, description="updates of linear warm-up")
    initial: float = Field(default=0.0, ge=0, description="learning rate that the warm-up starts from")

    def unused_settings(self) -> UnusedSettings:
        """Where a warm-up begins that there is not."""
        return _of_warmup(self.warmup)


def _of_warmup(updates: int) -> UnusedSettings:
    if not updates:
        yield "initial", "there is no warm-up with warmup: 0"


def _end(schedule: str, updates: int | None, max_updates: int | None, warmup: int) -> int:
    end = updates or max_updates
    if end is None:
        raise ValueError(f"the {schedule} schedule needs schedule.updates where max_updates is not set")
    if end <= warmup:
        name = "schedule.updates" if updates else "max_updates"
        raise ValueError(
            f"{name} is {end}, where the {schedule} ends, but schedule.warmup lasts {warmup} updates: "
            "make the warm-up shorter"
        )
    return end


ScheduleConfig = Annotated[
    InverseSqrtConfig | NoamConfig | CosineConfig | WarmupStableDecayConfig | ConstantConfig,
    Field(discriminator="type"),
    by_name_or("inverse_sqrt"),
]
"""A schedule section: a plain string stands for its type; a section without a type is `inverse_sqrt`."""


def build_schedule(config: ScheduleConfig, *, d_model: int, max_updates: int | None) -> Schedule:
    """The schedule of a run.

    Args:
        config: Its kind and constants.
        d_model: Width of the model, which the Noam schedule scales with.
        max_updates: Length of the run, which cosine and wsd end at unless they have their own length.

    Raises:
        ValueError: If a cosine or wsd has no end, or falls before the end of its warm-up.
    """
    match config:
        case InverseSqrtConfig():
            return lambda update: inverse_sqrt(config, update)
        case NoamConfig():
            return lambda update: noam(config, d_model, update)
        case CosineConfig():
            end = config.end(max_updates)
            return lambda update: cosine(config, end, update)
        case WarmupStableDecayConfig():
            bounds = config.bounds(max_updates)
            return lambda update: warmup_stable_decay(config, bounds, update)
        case ConstantConfig():
            return lambda update: constant(config, update)


def inverse_sqrt(config: InverseSqrtConfig, update: int) -> float:
    """Linear from ``initial`` to ``peak`` over the warm-up, then ``peak * sqrt(warmup / n)``.

    ``n = update - 1`` updates are finished when this one is made; fairseq counts the same way.
    """
    finished = update - 1
    if finished < config.warmup:
        return _linear(config.initial, config.peak, finished, config.warmup)
    return config.peak * math.sqrt(max(config.warmup, 1) / max(finished, 1))


def noam(config: NoamConfig, d_model: int, update: int) -> float:
    """``scale * d_model^-0.5 * min(u^-0.5, u * warmup^-1.5)`` (Vaswani et al. 2017, eq. 3)."""
    return (
        config.scale / math.sqrt(d_model) * min(1 / math.sqrt(update), update / math.sqrt(config.warmup) ** 3)
    )


def cosine(config: CosineConfig, end: int, update: int) -> float:
    """Linear warm-up, then half a cosine from ``peak`` at the end of it to ``minimum`` at update ``end``."""
    if update <= config.warmup:
        return _linear(config.initial, config.peak, update, config.warmup)
    done = min(1.0, (update - config.warmup) / (end - config.warmup))
    return config.minimum + (config.peak - config.minimum) * 0.5 * (1 + math.cos(math.pi * done))


def warmup_stable_decay(config: WarmupStableDecayConfig, bounds: tuple[int, int], update: int) -> float:
    """Linear warm-up, then ``peak`` to the first of the bounds, then down to ``minimum`` at the second."""
    begin, end = bounds
    if update <= config.warmup:
        return _linear(config.initial, config.peak, update, config.warmup)
    done = min(1.0, max(0.0, (update - begin) / (end - begin)))
    left = {
        "linear": 1 - done,
        "1-sqrt": 1 - math.sqrt(done),
        "cosine": 0.5 * (1 + math.cos(math.pi * done)),
    }
    return config.minimum + (config.peak - config.minimum) * left[config.form]


def constant(config: ConstantConfig, update: int) -> float:
    """Linear from ``initial`` to ``peak`` over the warm-up, then ``peak``."""
    if update <= config.warmup:
        return _linear(config.initial, config.peak, update, config.warmup)
    return config.peak


def _linear(start: float, end: float, position: int, length: int) -> float:
    return start + (end - start) * position / length
