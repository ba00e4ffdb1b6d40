"""The ``training.ema`` section: running averages of the weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deepwire.config.counts import Count
from deepwire.config.section import Section


class EmaConfig(Section):
    """An exponential moving average: after each update, average += (1 - decay) (weights - average).

    It forgets the weights of n updates ago with decay^n: at 0.999 it spans about a thousand updates.
    """

    decay: float = Field(
        default=0.999, gt=0, lt=1, description="share of the old average that an update keeps"
    )
    start: Count = Field(
        default=0, ge=0, description="until this update the average is the weights themselves"
    )
    warmup: bool = Field(
        default=True,
        description="n updates after start the decay is at most (1 + n) / (10 + n): the first weights "
        "are soon forgotten",
    )
    model: Literal["average", "weights"] = Field(
        default="average",
        description="what validation scores and the model of a checkpoint is; the other is kept beside it",
    )
