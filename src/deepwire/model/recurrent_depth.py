"""Recurrent depth: the layers in the middle of an encoder run as often as asked for.

Geiping et al. 2025 (Scaling up Test-Time Compute with Latent Reasoning: A Recurrent Depth Approach), there of
language models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.section import Section
from deepwire.model.aggregations.aggregation import AggregationSection
from deepwire.model.aggregations.last import LastConfig
from deepwire.model.connections.connection import ConnectionSection
from deepwire.model.context import Context
from deepwire.model.fusions.fusion import FusionSection
from deepwire.model.fusions.top import TopConfig
from deepwire.model.layers import Linear
from deepwire.model.mixers.mixer import MixerSection, State
from deepwire.model.stack import Stack, StackOutput, StackParts
from deepwire.model.stack_spec import StackSpec


class RecurrenceConfig(Section):
    """How often the layers between the first and the last ones run."""

    prelude: int = Field(2, ge=0, le=10_000, description="first layers, which run once")
    coda: int = Field(2, ge=0, le=10_000, description="last layers, which run once")
    rounds: int = Field(
        8,
        ge=1,
        le=1000,
        description="how often the layers between them run where translation does not say otherwise; "
        "training draws a number for each update, on average one more",
    )
    backward: int = Field(8, ge=1, le=1000, description="last rounds of an update that gradients go through")
    start_std: float = Field(
        0.63, ge=0, le=100, description="standard deviation of what training begins with; 0 otherwise"
    )

    def starts(self, layers: int) -> frozenset[int]:
        """The first layer of prelude, middle and coda, of so many layers, from 0."""
        return frozenset({0, self.prelude, layers - self.coda} - {layers})

    def check(
        self,
        spec: StackSpec,
        mixer: MixerSection,
        connection: ConnectionSection,
        aggregation: AggregationSection,
        fusion: FusionSection,
    ) -> None:
        """Refuse a stack whose layers cannot run again, with a `ValueError`."""
        side = spec.side
        if side == "decoder":
            raise ValueError(
                "decoder.recurrence: rounds would each have keys of their own; set encoder.recurrence"
            )
        if self.prelude + self.coda >= spec.layers:
            raise ValueError(
                f"{side}.recurrence: {self.prelude} layers of the prelude and {self.coda} of the coda leave "
                f"none of {spec.layers} to run again"
            )
        unfit = {
            f"mixer {mixer.type}": mixer.has_companion or mixer.reads_below,
            f"connection {connection.type}": connection.droppable() == "nothing",
            f"aggregation {aggregation.type}": not isinstance(aggregation, LastConfig),
            f"fusion {fusion.type}": not isinstance(fusion, TopConfig),
        }
        if unfit_parts := [name for name, wrong in unfit.items() if wrong]:
            raise ValueError(
                f"{side}.recurrence: layers that run again cannot tell what lies below them, as {side}."
                f"{unfit_parts[0]} wants; leave one of them out"
            )


class RecurrentStack(Stack):
    """e = P(x), s_i = R(W [s_(i-1); e]) for i = 1 to r, and C(s_r): prelude, rounds and coda.

    Each of the three begins as a stack of its own would, and ends with the final norm of the connection,
    where it has one. In training s_0 is normal noise cut at three standard deviations, and only the last
    rounds have gradients; otherwise s_0 is 0, so that a translation depends on nothing but its source.

    Attributes:
        rounds: r, outside training.
        training_rounds: r of this update.
    """

    repeats = True

    def __init__(self, config: RecurrenceConfig, dim: int, parts: StackParts) -> None:
        super().__init__(dim, parts)
        self.recurrence, self.joint = config, Linear(2 * dim, dim, bias=False)
        self.rounds = self.training_rounds = config.rounds

    def parts(self) -> Mapping[str, nn.Module]:
        """See the base class."""
        return {**super().parts(), "recurrence": self.joint}

    def with_rounds(self, rounds: int) -> RecurrentStack:
        """The stack that runs its middle so often outside training; all parameters are shared."""
        other = copy(self)
        other.rounds = rounds
        return other

    def forward(self, x: Tensor, context: Context, states: Sequence[State] = ()) -> StackOutput:
        """Run the stack over whole sequences `[B, T, d]` of the source; see the base class."""
        first, last = self.recurrence.prelude, len(self.layers) - self.recurrence.coda

        def run(part: Tensor, layers: Sequence[range]) -> Tensor:
            depth = self.run(part, layers, context).depth
            return self.connection.normalise(self.connection.result(depth, context), context)

        entered = run(x, self.layers[:first]) if first else x
        state = self._start(entered)
        rounds = self.training_rounds if self.training else self.rounds
        for number in range(rounds):
            with torch.set_grad_enabled(
                torch.is_grad_enabled() and number >= rounds - self.recurrence.backward
            ):
                state = run(self.joint(torch.cat((state, entered), -1)), self.layers[first:last])
        if last < len(self.layers):
            state = run(state, self.layers[last:])
        # Every part has been normalised.
        return StackOutput(self.fusion([state], lambda given: given, context), (), ())

    def _start(self, like: Tensor) -> Tensor:
        deviation = self.recurrence.start_std
        if not self.training or not deviation:
            return torch.zeros_like(like)
        noise = torch.empty_like(like, requires_grad=False)
        return nn.init.trunc_normal_(noise, std=deviation, a=-3 * deviation, b=3 * deviation)
