"""Runge-Kutta blocks: a layer is evaluated several times, as one step of a method for differential equations.

Li et al. 2022 (ODE Transformer: An Ordinary Differential Equation-Inspired Model for Sequence Generation).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from deepwire.model.connections.connection import Call, Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, GateProbe, Place, single
from deepwire.model.stack_spec import StackSpec

Order = Literal[2, 3, 4]


class Method(NamedTuple):
    """Coefficients of a method whose k_j are what its stages give (Butcher's tableau).

    Attributes:
        inputs: Stage s + 2 is evaluated at y + sum_j inputs[s][j] k_j; the first is at y.
        weights: The step goes to y + sum_j weights[j] k_j.
    """

    inputs: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]


METHODS: dict[Order, Method] = {
    2: Method(((1,),), (1 / 2, 1 / 2)),
    3: Method(((1 / 2,), (-1, 2)), (1 / 6, 4 / 6, 1 / 6)),
    4: Method(((1 / 2,), (0, 1 / 2), (0, 0, 1)), (1 / 6, 2 / 6, 2 / 6, 1 / 6)),
}
RELEASED_THIRD_ORDER = Method(((1 / 2,), (0, 1)), METHODS[3].weights)


class RungeKuttaConfig(ConnectionSection):
    """Each layer is one step of a Runge-Kutta method."""

    # A layer is one step, with all its stages.
    drops: ClassVar[Droppable] = "layers"
    scales_branches: ClassVar[bool] = True

    type: Literal["runge_kutta"] = "runge_kutta"
    order: Order = Field(2, description="order of the method; a layer is evaluated so many times")
    combination: Literal["auto", "fixed", "learned", "gate"] = Field(
        "auto",
        description="how the stages add up: fixed weights of the method, learned weights, or a gate between "
        "two stages (the released code's standard, initialization and learnable); auto: gate for order 2, "
        "fixed for the others",
    )
    weights: Literal["scalar", "vector"] = Field(
        "scalar", description="combination learned: one weight per stage, or one per feature too"
    )
    initial: Literal["one", "fixed"] = Field(
        "one", description="combination learned: weights begin at 1, or at the method's"
    )
    function: Literal["increment", "layer"] = Field(
        "increment",
        description="what a stage evaluates: what the layer adds to its input (the paper), or the layer's "
        "output, which holds its input once more (the released code)",
    )
    third_order: Literal["kutta", "released"] = Field(
        "kutta", description="order 3: third stage at y - k1 + 2 k2, or at y + k2 (the released code)"
    )
    final_norm: bool = Field(True, description="one more norm after the stack")

    @model_validator(mode="after")
    def _fits(self) -> RungeKuttaConfig:
        if self.combination == "gate" and self.order != 2:
            raise ValueError(
                f"combination: gate weighs two stages, not the {self.order} of order {self.order}"
            )
        if self.combination != "learned" and (self.weights != "scalar" or self.initial != "one"):
            raise ValueError("weights and initial are of learned weights; they need combination: learned")
        if self.third_order != "kutta" and self.order != 3:
            raise ValueError(f"third_order: {self.third_order} needs order: 3")
        return self

    def method(self) -> Method:
        """The method's coefficients."""
        return RELEASED_THIRD_ORDER if self.third_order == "released" else METHODS[self.order]

    def calls(self, spec: StackSpec) -> tuple[Call, ...]:
        """Every layer once for each stage."""
        kinds = spec.sublayers
        return tuple(
            Call(kind, layer, kind == kinds[-1] and stage == self.order - 1)
            for layer in range(spec.layers)
            for stage in range(self.order)
            for kind in kinds
        )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return RungeKutta(self, spec)


class RungeKutta(Connection):
    """y <- y + sum_j b_j k_j, k_j = F(y + sum_i a_ji k_i), F the pre-norm layer without its identity.

    Stages of a layer share its parameters, norms included. Order 2 with a gate: y + g k_1 + (1 - g) k_2 with
    g = sigma(w [k_1; k_2] + c), one number for each position. All layers of the stack have the same w and
    c, or the same learned weights b_j.

    The state is (stream, y, k_1, ...) between the stages of a layer; within a stage, what the stage has added
    so far comes after the stream.
    """

    def __init__(self, config: RungeKuttaConfig, spec: StackSpec) -> None:
        super().__init__(config.calls(spec))
        self.method, self.order, self.kinds = config.method(), config.order, len(spec.sublayers)
        self.increments = config.function == "increment"
        self.norms = nn.ModuleList(spec.norm() for _ in range(spec.layers * self.kinds))
        self.final_norm = spec.norm() if config.final_norm else None
        self.dropout = spec.branch()
        gated = config.combination == "gate" or (config.combination == "auto" and self.order == 2)
        self.gate = nn.Linear(2 * spec.dim, 1) if gated else None
        self.weights: nn.Parameter | None = None
        if config.combination == "learned":
            initial = (1.0,) * self.order if config.initial == "one" else self.method.weights
            weights = torch.tensor(initial)
            if config.weights == "vector":
                weights = weights.unsqueeze(1).repeat(1, spec.dim)
            self.weights = nn.Parameter(weights)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The normalised stream of this stage."""
        norm = self.calls[index].layer * self.kinds + index % self.kinds
        return self.norms[norm](state[0], context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output to the stage; begin the next stage, or combine them all, when it is complete."""
        output = self.dropout(output)
        stream = state[0] + output
        begins, ends = index % self.kinds == 0, (index + 1) % self.kinds == 0
        if begins:
            added, kept = output, state[1:] or state[:1]
        else:
            added, kept = state[1] + output, state[2:]
        if not ends:
            return (stream, added, *kept)
        base, stages = kept[0], (*kept[1:], added if self.increments else stream)
        if self.calls[index].closes:
            return (self._combine(base, stages),)
        return (_plus(base, self.method.inputs[len(stages) - 1], stages), base, *stages)

    def _combine(self, base: Tensor, stages: tuple[Tensor, ...]) -> Tensor:
        """The step from y, `[B, T, d]`, by all of its stages."""
        if self.gate is not None:
            gate = self.gate(torch.cat(stages, -1)).sigmoid()
            return base + gate * stages[0] + (1 - gate) * stages[1]
        if self.weights is None:
            return _plus(base, self.method.weights, stages)
        for weight, stage in zip(self.weights.unbind(), stages, strict=True):
            base = base + weight * stage
        return base

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The weights of the stages, where they do not depend on the text; all layers have the same."""
        if self.gate is not None:
            return ()
        fixed = self.weights is None
        values = torch.tensor(self.method.weights) if self.weights is None else self.weights
        title = f"Weights of the stages of a step ({'fixed' if fixed else 'learned'})"
        stages = [f"k{stage + 1}" for stage in range(self.order)]
        return (single("stages", title, values, stages, "stage"),)

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """The gate between the two stages, where there is one."""
        if self.gate is None:
            return ()
        layers = sorted({call.layer for call in self.calls})

        def read(_inputs: tuple[Tensor, ...], output: object) -> Mapping[str, Tensor]:
            return {"first stage": cast("Tensor", output).sigmoid()}

        places = tuple(Place(layer, str(layer + 1)) for layer in layers)
        meaning = {"first stage": "the step is k1 alone; 0: k2 alone"}
        return (GateProbe("Runge-Kutta gate", self.gate, places, read, meaning),)


def _plus(base: Tensor, weights: tuple[float, ...], stages: tuple[Tensor, ...]) -> Tensor:
    for weight, stage in zip(weights, stages, strict=True):
        if weight:
            base = torch.add(base, stage, alpha=weight)
    return base
