"""Exponential moving average of the weights: what a checkpoint's model is, or is kept beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor

from deepwire.config.counts import Count
from deepwire.config.section import Section
from deepwire.errors import ModelError
from deepwire.training.extras import Extra

if TYPE_CHECKING:  # a run file is read without it, and sooner
    from deepwire.training.parallel_strategy import ParallelStrategy


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


class MovingAverage(Extra):
    """Averages of the trained parameters, in float32 beside them; a frozen one is its own average.

    Args:
        parameters: Names and trained parameters of the model.
        config: Constants.
        strategy: Where the parameters are among the processes.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], config: EmaConfig, strategy: ParallelStrategy
    ) -> None:
        self.config, self._strategy, self._parameters = config, strategy, dict(parameters)
        self._averages = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def after_step(self, update: int) -> None:
        """Move the averages towards the weights."""
        torch._foreach_lerp_(*self._local(), self.step_size(update))

    def step_size(self, update: int) -> float:
        """How far the averages move after an update: 1 - decay; all the way until ``start``."""
        since = update - self.config.start
        if since <= 0:
            return 1.0
        decay = self.config.decay
        # The warm-up is that of TensorFlow's ExponentialMovingAverage with num_updates.
        return 1 - (min(decay, (1 + since) / (10 + since)) if self.config.warmup else decay)

    @contextmanager
    def as_model(self) -> Iterator[None]:
        """Within the block the model has the averages, where the user wants that, and they its weights."""
        swaps = self.config.model == "average"
        if swaps:
            self._swap()
        try:
            yield
        finally:
            if swaps:
                self._swap()

    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint keeps beside the model, taken within `as_model`.

        ``weights.NAME`` where the model has the averages, else ``average.NAME``.
        """
        return {f"{self._prefix}{name}": average for name, average in self._averages.items()}

    def load_state(self, tensors: Mapping[str, Tensor] | None) -> None:
        """Continue from what `state` gave; the model has been filled from the checkpoint before.

        Args:
            tensors: Those and others; None where another process has them.

        Raises:
            ModelError: If a tensor is missing or has another shape.
        """
        averages = self.state()
        kept = {name: tensor for name, tensor in (tensors or {}).items() if name in averages}
        if tensors is not None and any(
            name not in kept or kept[name].shape != averages[name].shape for name in averages
        ):
            raise ModelError("the averages in the checkpoint do not fit the model")
        self._strategy.load(averages, kept)
        if self.config.model == "average":
            self._swap()

    def owns(self, name: str) -> bool:
        """Whether a tensor of this name is one of `state`."""
        return name.startswith(self._prefix)

    @property
    def _prefix(self) -> str:
        return "weights." if self.config.model == "average" else "average."

    @torch.no_grad()
    def _swap(self) -> None:
        for average, weight in zip(*self._local(), strict=True):
            kept = average.clone()
            average.copy_(weight)
            weight.copy_(kept)

    def _local(self) -> tuple[list[Tensor], list[Tensor]]:
        """Averages and weights, as far as this process holds them."""
        local = self._strategy.local
        return (
            [local(average) for average in self._averages.values()],
            [local(parameter.detach()) for parameter in self._parameters.values()],
        )
