"""Adam with clipping, in one fused pass over the parameters and without waiting for the device."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deepwire.errors import ModelError
from deepwire.training.config import OptimizerConfig

# Both clip_grad_norm_ and fairseq add this to the norm before dividing by it.
_NORM_EPS = 1e-6


class StepResult(NamedTuple):
    """What a step found out, on the device; reading it waits for the device.

    Attributes:
        norm: Length of the whole gradient before clipping, float32 scalar.
        finite: Whether loss and gradient were finite, bool scalar; if not, nothing was changed.
    """

    norm: Tensor
    finite: Tensor


class _FusedAdam(torch.optim.Adam):
    """Adam with the two inputs of its fused kernel that gradient scalers set."""

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None


class Optimizer:
    """Adam (Kingma and Ba 2015, algorithm 1) or AdamW (Loshchilov and Hutter 2019, algorithm 2).

    Args:
        parameters: Names and parameters of the model.
        config: Constants.
        clip_norm: Longest gradient; longer ones are scaled down. None: no clipping.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        config: OptimizerConfig,
        clip_norm: float | None,
    ) -> None:
        self.parameters = dict(parameters)
        self.config = config
        self.clip_norm = clip_norm
        self.steps = 0
        self._adam = _FusedAdam(
            list(self.parameters.values()),
            lr=0.0,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            decoupled_weight_decay=config.type == "adamw",
            fused=True,
        )

    def zero_grad(self) -> None:
        """Forget the gradients of the last update."""
        self._adam.zero_grad(set_to_none=True)

    def step(self, learning_rate: float, loss: Tensor) -> StepResult:
        """Move the parameters along the clipped gradient, unless loss or gradient is not finite.

        Args:
            learning_rate: Rate of this update.
            loss: The loss of the update, a scalar; it is only looked at.
        """
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        finite = torch.isfinite(norm) & torch.isfinite(loss)
        # The fused kernel divides gradients by grad_scale, and changes nothing where found_inf is 1.
        scale = torch.ones_like(norm)
        if self.clip_norm is not None:
            scale = ((norm + _NORM_EPS) / self.clip_norm).clamp(min=1.0)
        self._adam.grad_scale = scale
        self._adam.found_inf = (~finite).float()
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
            group["eps"] = self._eps(self.steps + 1)
        self._adam.step()
        self.steps += 1
        return StepResult(norm, finite)

    def forget_steps(self, count: int) -> None:
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
        """Moments and steps of each parameter: ``exp_avg.NAME``, ``exp_avg_sq.NAME``, ``step.NAME``."""
        return {
            f"{key}.{name}": value
            for name, parameter in self.parameters.items()
            for key, value in self._adam.state.get(parameter, {}).items()
        }

    def load_state(self, tensors: dict[str, Tensor], steps: int) -> None:
        """Continue from what ``state`` gave.

        Raises:
            ModelError: If a tensor belongs to no parameter or has another shape.
        """
        for key, value in tensors.items():
            moment, _, name = key.partition(".")
            parameter = self.parameters.get(name)
            shape = torch.Size() if moment == "step" or parameter is None else parameter.shape
            if parameter is None or moment not in ("exp_avg", "exp_avg_sq", "step") or value.shape != shape:
                raise ModelError(f"optimizer state {key} {list(value.shape)} does not fit the model")
            self._adam.state[parameter][moment] = value.to(parameter.device, torch.float32)
        self.steps = steps
