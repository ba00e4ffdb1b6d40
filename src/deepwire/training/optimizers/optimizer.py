"""The movement of parameters: clipping, and the update rules that an optimizer consists of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypedDict, cast

import torch
from torch import Tensor, nn

from deepwire.config.choice import Choice
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

    @classmethod
    def instead_of(cls, name: str, found: object) -> str:
        """Where the optimizer of torch itself was named, the settings that make it."""
        if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
            return ""
        return f"; derive one from TorchOptimizerSection whose make returns {name}(groups), and name that"

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

    Args:
        model: The model.
        config: Its kind and constants.
        clip_norm: See `Optimizer`.
        strategy: See `Optimizer`.
        product_dtype: See `OptimizerContext`.
        scales: See `OptimizerContext`; those of `update_scales` and `with_rate_factors`, from before the
            strategy divided the model.

    Raises:
        UsageError: A setting does not fit the model.
    """
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    rules = config.rules(OptimizerContext(model, learning, strategy, scales or {}, product_dtype))
    return Optimizer(learning.items(), rules, clip_norm, strategy)
