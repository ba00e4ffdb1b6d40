"""Clipping, Adam in one fused pass, and Muon where it is asked for; none of it waits for the device."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.adam import adam

from deepwire.config.choice import by_name_or
from deepwire.config.counts import Positive
from deepwire.config.section import Section
from deepwire.errors import ModelError
from deepwire.model.parametrization import UpdateScale
from deepwire.training.muon import Muon, MuonSettings, hidden_matrices

if TYPE_CHECKING:  # a run file is read without it, and sooner
    from deepwire.model.translation_model import TranslationModel
    from deepwire.training.parallel_strategy import ParallelStrategy

# Both clip_grad_norm_ and fairseq add this to the norm before dividing by it.
_NORM_EPS = 1e-6
_KEYS = ("exp_avg", "exp_avg_sq", "step")
_Decay = Annotated[float, Field(ge=0, lt=1)]


class _AdamSection(Section):
    """The constants of Adam."""

    betas: tuple[_Decay, _Decay] = Field(default=(0.9, 0.98), description="decay of the two moments")
    eps: Positive = Field(default=1e-9, description="added to the denominator")
    eps_form: Literal["torch", "fairseq"] = Field(
        default="torch",
        description="torch adds eps after the bias correction of the second moment, fairseq before it",
    )
    weight_decay: float = Field(default=0.0, ge=0, description="decay of every parameter")


class OptimizerConfig(_AdamSection):
    """Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019)."""

    type: Literal["adam", "adamw"] = Field(
        default="adamw", description="adamw decays weights directly; adam adds the decay to the gradient (L2)"
    )


class MuonConfig(_AdamSection, MuonSettings):
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for all else."""

    type: Literal["muon"] = "muon"


AnyOptimizerConfig = OptimizerConfig | MuonConfig


OptimizerChoice = Annotated[AnyOptimizerConfig, Field(discriminator="type"), by_name_or("adamw")]
"""An optimizer section: a plain string stands for its type; a section without a type is `adamw`."""


class StepResult(NamedTuple):
    """What a step found out, on the device; reading it waits for the device.

    Attributes:
        norm: Length of the whole gradient before clipping, float32 scalar.
        finite: Whether loss and gradient were finite, bool scalar; if not, nothing was changed.
    """

    norm: Tensor
    finite: Tensor


class _Moments(NamedTuple):
    """What Adam keeps of one parameter; the fused kernel wants the count of steps on the device."""

    first: Tensor
    second: Tensor
    steps: Tensor

    @classmethod
    def zeros(cls, parameter: Tensor) -> _Moments:
        first, second = (torch.zeros_like(parameter, requires_grad=False) for _ in range(2))
        return cls(first, second, torch.zeros((), dtype=torch.float32, device=parameter.device))


class Optimizer:
    """Adam (Kingma and Ba 2015, algorithm 1) or AdamW (Loshchilov and Hutter 2019, algorithm 2).

    It calls torch's function and not torch's class, which would import the compiler: a second at every start.

    Args:
        parameters: Names and parameters of the model.
        config: Constants.
        clip_norm: Largest norm of the gradient; larger ones are scaled down. None: no clipping.
        strategy: Where the parameters are among the processes.
        muon: Moves some of the parameters in the place of Adam; None: it moves none.
        scales: Factors of Adam's learning rate, decay and epsilon of parameters by name; 1 for the others.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        config: AnyOptimizerConfig,
        clip_norm: float | None,
        strategy: ParallelStrategy,
        muon: Muon | None = None,
        scales: Mapping[str, UpdateScale] | None = None,
    ) -> None:
        self.parameters = dict(parameters)
        self.config = config
        self.clip_norm, self.strategy = clip_norm, strategy
        self.steps = 0
        self.muon = muon
        by_muon = () if muon is None else muon.names
        self._moments = {
            name: _Moments.zeros(parameter)
            for name, parameter in self.parameters.items()
            if name not in by_muon
        }
        groups: dict[UpdateScale, list[str]] = defaultdict(list)
        for name in self._moments:
            groups[(scales or {}).get(name, UpdateScale())].append(name)
        self._groups = list(groups.items())

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
        # The fused kernel divides gradients by grad_scale, and changes nothing where found_inf is 1.
        scale = torch.ones_like(norm)
        if self.clip_norm is not None:
            scale = ((norm + _NORM_EPS) / self.clip_norm).clamp(min=1.0)
        self.steps += 1
        if self.muon is not None:
            self.muon.step(learning_rate, scale, finite)
        for factors, names in self._groups:
            if used := [name for name in names if name in gradients]:
                self._update(used, gradients, learning_rate, factors, scale, (~finite).float())
        return StepResult(norm, finite)

    def _update(
        self,
        names: Sequence[str],
        gradients: Mapping[str, Tensor],
        learning_rate: float,
        factors: UpdateScale,
        scale: Tensor,
        found_inf: Tensor,
    ) -> None:
        """Take Adam's step of parameters with the same factors; their gradients are divided by `scale`."""
        local, moments = self.strategy.local, [self._moments[name] for name in names]
        beta1, beta2 = self.config.betas
        adam(
            [local(self.parameters[name]) for name in names],
            [gradients[name] for name in names],
            [local(each.first) for each in moments],
            [local(each.second) for each in moments],
            [],
            [each.steps for each in moments],
            fused=True,
            grad_scale=scale,
            found_inf=found_inf,
            decoupled_weight_decay=self.config.type != "adam",
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=learning_rate * factors.rate,
            weight_decay=self.config.weight_decay * factors.decay,
            eps=self._eps(self.steps) * factors.eps,
            maximize=False,
        )

    def undo_steps(self, count: int) -> None:
        """Take back the count of steps that turned out not to be finite."""
        self.steps -= count

    def _eps(self, step: int) -> float:
        """The eps that torch's formula needs.

        torch:   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
        fairseq: p -= lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps)

        The second is the first with eps / sqrt(1 - b2^t).
        """
        if self.config.eps_form == "torch":
            return self.config.eps
        return self.config.eps / math.sqrt(1 - self.config.betas[1] ** step)

    def state(self) -> dict[str, Tensor]:
        """Moments and steps of each parameter: ``exp_avg.NAME``, ``exp_avg_sq.NAME``, ``step.NAME``.

        Of what Muon moves, ``momentum.NAME``.
        """
        by_muon = {} if self.muon is None else self.muon.state()
        return by_muon | {
            f"{key}.{name}": value
            for name, moments in self._moments.items()
            for key, value in zip(_KEYS, moments, strict=True)
        }

    def load_state(self, tensors: Mapping[str, Tensor] | None, steps: int) -> None:
        """Continue from what ``state`` gave; None where another process has it, or there is none yet.

        Raises:
            ModelError: If a tensor is missing, belongs to no parameter or has another shape.
        """
        expected = self.state()
        if tensors is not None and tensors.keys() != expected.keys():
            wrong = sorted(tensors.keys() ^ expected.keys())
            raise ModelError(f"optimizer state does not fit the model: {', '.join(wrong[:5])}")
        for key, value in (tensors or {}).items():
            if value.shape != expected[key].shape:
                raise ModelError(f"optimizer state {key} {list(value.shape)} does not fit the model")
        self.strategy.load(expected, tensors or {})
        self.steps = steps


def make_optimizer(
    model: TranslationModel,
    config: AnyOptimizerConfig,
    clip_norm: float | None,
    strategy: ParallelStrategy,
    *,
    muon_dtype: torch.dtype = torch.float32,
    scales: Mapping[str, UpdateScale] | None = None,
) -> Optimizer:
    """The optimizer of the parameters of a model that are not frozen.

    Args:
        model: The model.
        config: Its kind and constants.
        clip_norm: See `Optimizer`.
        strategy: See `Optimizer`.
        muon_dtype: Number format in which Muon makes matrices orthogonal.
        scales: See `Optimizer`, and of the rates of what Muon moves; those of `update_scales` and
            `with_rate_factors`, from before the strategy divided the model.

    Raises:
        UsageError: Muon finds no matrix that it is to move.
    """
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    muon = None
    if isinstance(config, MuonConfig):
        matrices = {
            name: hidden._replace(rate_factor=(scales or {}).get(name, UpdateScale()).rate)
            for name, hidden in hidden_matrices(model, learning, config.by_adamw).items()
        }
        muon = Muon(matrices, config, config.weight_decay, muon_dtype)
    return Optimizer(learning.items(), config, clip_norm, strategy, muon, scales)
