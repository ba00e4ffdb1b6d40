"""Learning rates: functions from the number of an update (from 1) to the rate it is made with."""

from __future__ import annotations

import math
from collections.abc import Callable

from deepwire.training.config import (
    ConstantConfig,
    CosineConfig,
    InverseSqrtConfig,
    NoamConfig,
    ScheduleConfig,
)

Schedule = Callable[[int], float]


def build_schedule(config: ScheduleConfig, *, d_model: int, max_updates: int | None) -> Schedule:
    """The schedule of a run.

    Args:
        config: Its kind and constants.
        d_model: Width of the model, which the Noam schedule scales with.
        max_updates: Length of the run, which the cosine ends at unless it has its own length.

    Raises:
        ValueError: If a cosine has no end, or ends before its warm-up.
    """
    match config:
        case InverseSqrtConfig():
            return lambda update: inverse_sqrt(config, update)
        case NoamConfig():
            return lambda update: noam(config, d_model, update)
        case CosineConfig():
            end = config.end(max_updates)
            return lambda update: cosine(config, end, update)
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


def constant(config: ConstantConfig, update: int) -> float:
    """Linear from ``initial`` to ``peak`` over the warm-up, then ``peak``."""
    if update <= config.warmup:
        return _linear(config.initial, config.peak, update, config.warmup)
    return config.peak


def _linear(start: float, end: float, position: int, length: int) -> float:
    return start + (end - start) * position / length
