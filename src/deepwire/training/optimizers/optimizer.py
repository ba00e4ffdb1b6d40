"""The movement of parameters: clipping, and the update rules that an optimizer consists of."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, TypedDict, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.adam import adam

from deepwire.config.choice import Choice
from deepwire.config.counts import Positive
from deepwire.errors import ModelError
from deepwire.model.parametrization import UpdateScale
from deepwire.plugins import Kind

if TYPE_CHECKING:  # a run file is read without it, and sooner
    from deepwire.model.translation_model import TranslationModel
    from deepwire.training.parallel_strategy import ParallelStrategy

# Both clip_grad_norm_ and fairseq add this to the norm before dividing by it.
_NORM_EPS = 1e-6


class StepResult(NamedTuple):
    """The outcome of a step, on the device; reading it waits for the device.

    Attributes:
        norm: Length of the whole gradient before clipping, float32 scalar.
        finite: Whether loss and gradient were finite, bool scalar; if not, nothing was changed.
    """

    norm: Tensor
    finite: Tensor


class Step(NamedTuple):
    """The facts of a step for the rules; the tensors are scalars on the device.

    Attributes:
        rate: Learning rate.
        number: Which step it is, from 1; steps that turned out not to be finite are not counted.
        scale: What gradients are to be divided by, at least 1, for the clipping.
        finite: Whether anything is to happen.
    """

    rate: float
    number: int
    scale: Tensor
    finite: Tensor


class KeptTensor(TypedDict):
    """The outline of a tensor in a checkpoint before its numbers are there."""

    shape: list[int]
    dtype: str


class UpdateRule(ABC):
    """How some of the parameters move."""

    @abstractmethod
    def step(self, gradients: Mapping[str, Tensor], step: Step) -> None:
        """Move the parameters that have a gradient, unless the step is not finite.

        Args:
            gradients: What this process holds of them, by name; also of parameters of other rules.
            step: See `Step`.
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint, as ``KEY.NAME`` of each parameter, in the memory of the rule."""

    def state_to_fill(self, kept: Mapping[str, KeptTensor]) -> dict[str, Tensor]:
        """The tensors that what a checkpoint has kept is to be copied to; `state` as a rule."""
        del kept
        return self.state()

    def filled(self, state: Mapping[str, Tensor]) -> None:
        """Take note that the tensors of `state_to_fill` have been filled; nothing as a rule."""
        del state


@dataclass(frozen=True)
class OptimizerContext:
    """The parameters and scales that the rules of an optimizer are made for.

    Attributes:
        model: The model, on its device.
        learning: The parameters that are not frozen, by name.
        strategy: Where the parameters are among the processes.
        scales: Factors of learning rate, decay and epsilon of parameters by name; 1 for the others.
        product_dtype: Number format in which Muon makes matrices orthogonal.
    """

    model: TranslationModel
    learning: Mapping[str, nn.Parameter]
    strategy: ParallelStrategy
    scales: Mapping[str, UpdateScale]
    product_dtype: torch.dtype = torch.float32

    def scale(self, name: str) -> UpdateScale:
        """The factors of one parameter."""
        return self.scales.get(name, UpdateScale())


class OptimizerSection(Choice, ABC):
    """Base of an optimizer's settings."""

    kind: ClassVar[Kind] = "optimizer"
    # Whether each element of a parameter is updated by itself, as sharding over processes needs.
    supports_sharding: ClassVar[bool] = False

    @abstractmethod
    def rules(self, context: OptimizerContext) -> Sequence[UpdateRule]:
        """The rules that move the parameters, each of which is moved by one of them.

        Raises:
            UsageError: A setting does not fit the model.
        """

    def check_parametrization(self) -> None:
        """Refuse rules that do not take the factors of `model.parametrization`: rate, decay and epsilon.

        Raises:
            ValueError: They do not; the text says what to do.
        """
        raise ValueError(
            "model.parametrization: complete_p scales rate, decay and epsilon of adamw, and "
            f"{self.type} takes not all of them; set training.optimizer.type to adamw, or leave "
            "model.parametrization out"
        )


class Optimizer:
    """Clips the gradient of all parameters, and lets the rules move them; it does not wait for the device.

    Args:
        parameters: Names and parameters of the model.
        rules: What moves them.
        clip_norm: Largest norm of the gradient; larger ones are scaled down. None: no clipping.
        strategy: Where the parameters are among the processes.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        rules: Sequence[UpdateRule],
        clip_norm: float | None,
        strategy: ParallelStrategy,
    ) -> None:
        self.parameters, self.rules = dict(parameters), list(rules)
        self.clip_norm, self.strategy = clip_norm, strategy
        self.steps = 0

    def zero_grad(self) -> None:
        """Forget the gradients of the last update."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, learning_rate: float, loss: Tensor) -> StepResult:
        """Move the parameters along the clipped gradient, unless loss or gradient is not finite.

        Args:
            learning_rate: Rate of this update.
            loss: The loss of the update, a scalar; it is only looked at.
        """
        local = self.strategy.local
        gradients = {name: local(p.grad) for name, p in self.parameters.items() if p.grad is not None}
        norm = self.strategy.total_norm(list(gradients.values()))
        finite = torch.isfinite(norm) & torch.isfinite(loss)
        scale = torch.ones_like(norm)
        if self.clip_norm is not None:
            scale = ((norm + _NORM_EPS) / self.clip_norm).clamp(min=1.0)
        self.steps += 1
        for rule in self.rules:
            rule.step(gradients, Step(learning_rate, self.steps, scale, finite))
        return StepResult(norm, finite)

    def undo_steps(self, count: int) -> None:
        """Take back the count of steps that turned out not to be finite."""
        self.steps -= count

    def state(self) -> dict[str, Tensor]:
        """The tensors that all rules keep of each parameter, such as ``exp_avg.NAME``."""
        return {key: tensor for rule in self.rules for key, tensor in rule.state().items()}

    def load_state(self, tensors: Mapping[str, Tensor] | None, steps: int) -> None:
        """Continue from what ``state`` gave; None where another process has it, or there is none yet.

        Raises:
            ModelError: If a tensor is missing, belongs to no parameter or has another shape.
        """
        kept = {
            key: KeptTensor(shape=list(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
            for key, tensor in (tensors or {}).items()
        }
        # Of rules that keep nothing before their first step, the main process alone knows what is to come.
        kept = cast("dict[str, KeptTensor]", self.strategy.processes.broadcast_value(kept))
        filled = [rule.state_to_fill(kept) for rule in self.rules]
        expected = {key: tensor for state in filled for key, tensor in state.items()}
        if tensors is not None and tensors.keys() != expected.keys():
            wrong = sorted(tensors.keys() ^ expected.keys())
            raise ModelError(f"optimizer state does not fit the model: {', '.join(wrong[:5])}")
        for key, value in (tensors or {}).items():
            if value.shape != expected[key].shape:
                raise ModelError(f"optimizer state {key} {list(value.shape)} does not fit the model")
        self.strategy.load(expected, tensors or {})
        for rule, state in zip(self.rules, filled, strict=True):
            rule.filled(state)
        self.steps = steps


def make_optimizer(
    model: TranslationModel,
    config: OptimizerSection,
    clip_norm: float | None,
    strategy: ParallelStrategy,
    *,
    product_dtype: torch.dtype = torch.float32,
    scales: Mapping[str, UpdateScale] | None = None,
) -> Optimizer:
    """The optimizer of the parameters of a model that are not frozen.

    `scales` are those of `update_scales` and `with_rate_factors`, from before the strategy divided the model.

    Raises:
        UsageError: A setting does not fit the model.
    """
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    rules = config.rules(OptimizerContext(model, learning, strategy, scales or {}, product_dtype))
    return Optimizer(learning.items(), rules, clip_norm, strategy)


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
