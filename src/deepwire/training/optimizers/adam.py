"""Adam and AdamW, by torch's fused kernel."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.adam import adam

from deepwire.config.counts import Positive
from deepwire.model.parametrization import UpdateScale
from deepwire.training.optimizers.optimizer import OptimizerContext, OptimizerSection, Step, UpdateRule

if TYPE_CHECKING:
    from deepwire.training.parallel_strategy import ParallelStrategy

_KEYS = ("exp_avg", "exp_avg_sq", "step")
_Decay = Annotated[float, Field(ge=0, lt=1)]


class AdamSection(OptimizerSection):
    """The constants of Adam."""

    supports_sharding: ClassVar[bool] = True
    # False: weight decay is added to the gradient (L2).
    decoupled_weight_decay: ClassVar[bool] = True
    betas: tuple[_Decay, _Decay] = Field(default=(0.9, 0.98), description="decay of the two moments")
    eps: Positive = Field(default=1e-9, description="added to the denominator")
    eps_form: Literal["torch", "fairseq"] = Field(
        default="torch",
        description="torch adds eps after the bias correction of the second moment, fairseq before it",
    )
    weight_decay: float = Field(default=0.0, ge=0, description="decay of every parameter")

    def rules(self, context: OptimizerContext) -> Sequence[UpdateRule]:
        """One rule for all parameters."""
        return [Adam(context.learning, self, context.strategy, context.scales)]


class AdamWConfig(AdamSection):
    """AdamW (Loshchilov and Hutter 2019), which decays weights directly."""

    type: Literal["adamw"] = "adamw"

    def check_parametrization(self) -> None:
        """Supports all factors."""


class AdamConfig(AdamSection):
    """Adam (Kingma and Ba 2015), which adds the decay to the gradient (L2)."""

    type: Literal["adam"] = "adam"
    decoupled_weight_decay: ClassVar[bool] = False

    def check_parametrization(self) -> None:
        """Supports all factors but that of weight decay."""
        if self.weight_decay:
            raise ValueError(
                "model.parametrization: complete_p scales the decay of adamw, and adam adds its own to the "
                "gradient; set training.optimizer.type to adamw, or weight_decay to 0"
            )


class _Moments(NamedTuple):
    """The state of one parameter; the fused kernel needs `steps` on the device."""

    first: Tensor
    second: Tensor
    steps: Tensor

    @classmethod
    def zeros(cls, parameter: Tensor) -> _Moments:
        first, second = (torch.zeros_like(parameter, requires_grad=False) for _ in range(2))
        return cls(first, second, torch.zeros((), dtype=torch.float32, device=parameter.device))


class Adam(UpdateRule):
    """Adam (Kingma and Ba 2015, algorithm 1) or AdamW (Loshchilov and Hutter 2019, algorithm 2).

    Calls torch.optim.adam.adam: the class torch.optim.Adam would import the compiler, which takes a second.

    Args:
        parameters: The parameters to update, by name.
        config: The constants.
        strategy: How parameters are distributed over processes.
        scales: Factors of learning rate, weight decay and eps by name of parameter; 1 for all others.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        config: AdamSection,
        strategy: ParallelStrategy,
        scales: Mapping[str, UpdateScale] | None = None,
    ) -> None:
        self.parameters, self.config, self.strategy = dict(parameters), config, strategy
        self._moments = {name: _Moments.zeros(parameter) for name, parameter in self.parameters.items()}
        groups: dict[UpdateScale, list[str]] = defaultdict(list)
        for name in self._moments:
            groups[(scales or {}).get(name, UpdateScale())].append(name)
        self._groups = list(groups.items())

    def step(self, gradients: Mapping[str, Tensor], step: Step) -> None:
        """Updates the parameters, those with the same factors together."""
        for factors, names in self._groups:
            if used := [name for name in names if name in gradients]:
                self._update(used, gradients, step, factors)

    def _update(
        self, names: Sequence[str], gradients: Mapping[str, Tensor], step: Step, factors: UpdateScale
    ) -> None:
        local, moments = self.strategy.local, [self._moments[name] for name in names]
        beta1, beta2 = self.config.betas
        # The fused kernel divides gradients by grad_scale, and changes nothing where found_inf is 1.
        adam(
            [local(self.parameters[name]) for name in names],
            [gradients[name] for name in names],
            [local(each.first) for each in moments],
            [local(each.second) for each in moments],
            [],
            [each.steps for each in moments],
            fused=True,
            grad_scale=step.scale,
            found_inf=(~step.finite).float(),
            decoupled_weight_decay=self.config.decoupled_weight_decay,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=step.rate * factors.rate,
            weight_decay=self.config.weight_decay * factors.decay,
            eps=self._eps(step.number) * factors.eps,
            maximize=False,
        )

    def _eps(self, step: int) -> float:
        """The eps for torch's formula.

        torch:   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
        fairseq: p -= lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps)

        The second is the first with eps / sqrt(1 - b2^t).
        """
        if self.config.eps_form == "torch":
            return self.config.eps
        return self.config.eps / math.sqrt(1 - self.config.betas[1] ** step)

    def state(self) -> dict[str, Tensor]:
        """Moments and steps of each parameter: ``exp_avg.NAME``, ``exp_avg_sq.NAME``, ``step.NAME``."""
        return {
            f"{key}.{name}": value
            for name, moments in self._moments.items()
            for key, value in zip(_KEYS, moments, strict=True)
        }
