"""An optimizer of another package, as one would write it with torch's interface."""

from __future__ import annotations

from typing import Literal

import torch

from deepwire.training.optimizers.torch_optimizer import Groups, TorchOptimizerSection


class Counting(torch.optim.Optimizer):
    """Descent whose steps shrink; what it keeps is a tensor, a number of each parameter, and one of all."""

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups, {"lr": 1.0, "steps": 0, "nesterov": False, "name": "counting"})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["steps"] += 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    state["times"] = state.get("times", 0) + 1
                    mean = state.setdefault("mean", torch.zeros_like(parameter))
                    mean.lerp_(parameter.grad, 0.5)
                    parameter.sub_(group["lr"] * mean / (state["times"] * group["steps"]) ** 0.25)


class CountingConfig(TorchOptimizerSection):
    type: Literal["counting"] = "counting"

    def make(self, groups: Groups) -> torch.optim.Optimizer:
        return Counting(groups)
