"""Lion (Chen et al. 2023, Symbolic Discovery of Optimization Algorithms), an optimizer as torch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field

from deepwire.training.optimizers.torch_optimizer import Groups, TorchOptimizerSection


class LionConfig(TorchOptimizerSection):
    """Every number moves by the rate, in the direction of a momentum's sign."""

    type: Literal["lion"] = "lion"
    betas: tuple[float, float] = Field(
        default=(0.9, 0.99), description="share of the momentum in a step, and share that is kept of it"
    )
    weight_decay: float = Field(default=0.0, ge=0, description="decay of every parameter")

    def make(self, groups: Groups) -> Lion:
        """The optimizer of these parameters."""
        return Lion(groups, self.betas, self.weight_decay)


class Lion(torch.optim.Optimizer):
    """p <- p - lr (sign(b1 m + (1 - b1) g) + decay p), and m <- b2 m + (1 - b2) g."""

    def __init__(self, groups: Groups, betas: tuple[float, float], weight_decay: float) -> None:
        super().__init__(groups, {"lr": 1e-4, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            of_step, kept = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                direction = momentum.lerp(parameter.grad, 1 - of_step).sign_()
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(direction, alpha=-group["lr"])
                momentum.lerp_(parameter.grad, 1 - kept)
