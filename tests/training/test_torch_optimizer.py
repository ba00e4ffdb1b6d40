"""Optimizers of torch's interface: what they compute, keep and refuse, and runs that they train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from counting_optimizer import Counting, CountingConfig
from pydantic import Field
from torch import Tensor, nn
from toy_run import RunTwice

from deepwire import plugins
from deepwire.checkpoint.store import load_model
from deepwire.config import choice
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import ModelError, UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.training.optimizers.optimizer import make_optimizer
from deepwire.training.optimizers.torch_optimizer import Groups, TorchOptimizerSection
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.testing import check_optimizer

SHAPE = {"d_model": 8, "heads": 2, "feed_forward": 16, "encoder": {"layers": 1}, "decoder": {"layers": 1}}


class OfTorch(TorchOptimizerSection):
    """Any class of torch."""

    type: Literal["of_torch"] = "of_torch"
    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    def make(self, groups: Groups) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = getattr(torch.optim, self.name)(groups, **self.options)
        return made


@pytest.fixture
def counting() -> Iterator[None]:
    """Registered within a test."""
    plugins.register_optimizer(CountingConfig)
    yield
    plugins._registered.clear()
    choice._TABLES["optimizer"].others.clear()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adam", {"fused": True}),
        ("Adafactor", {}),
        *(
            pytest.param(name, {}, marks=pytest.mark.slow)
            for name in ("Adagrad", "NAdam", "RAdam", "RMSprop")
        ),
        pytest.param("SGD", {"momentum": 0.9, "nesterov": True}, marks=pytest.mark.slow),
    ],
)
def test_classes_of_torch_pass_the_checks(name: str, options: dict[str, Any]) -> None:
    check_optimizer(OfTorch(name=name, options=options), learning_rate=3e-3)


def test_one_that_keeps_numbers_passes_them() -> None:
    check_optimizer(CountingConfig(), learning_rate=1e-2)


class Keeping(CountingConfig):
    """Its state has other number formats than its parameters, and its groups have more than numbers."""

    form: Literal["int64", "bfloat16", "float64", "bool", "tensor"]

    def make(self, groups: Groups) -> torch.optim.Optimizer:
        form = self.form

        class Kept(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self, closure: object = None) -> None:  # type: ignore[override]
                for group in self.param_groups:
                    factor = 1.0
                    if form == "bool":
                        factor = 1.0 if group["begun"] else 0.5
                    elif form == "tensor":
                        factor = 1 / float(group["total"])
                    group["begun"] = True
                    group["total"] += 1
                    for parameter in group["params"]:
                        kept = self.state[parameter]
                        dtype = torch.float32 if form in ("bool", "tensor") else getattr(torch, form)
                        if "sum" not in kept:
                            kept["sum"] = torch.zeros_like(parameter, dtype=dtype)
                        if form == "int64":
                            kept["sum"] = kept["sum"] + (2**25 + 1) * (parameter.grad > 0)
                            factor = 1 + kept["sum"] % 3
                            parameter.sub_(group["lr"] * parameter.grad * factor)
                        else:
                            kept["sum"].mul_(0.9).add_(parameter.grad)
                            parameter.sub_(group["lr"] * factor * kept["sum"].to(parameter.dtype))

        return Kept(groups, {"lr": 1.0, "begun": False, "total": torch.ones(())})


@pytest.mark.parametrize(
    "form",
    [
        "int64",
        "bfloat16",
        "tensor",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("float64", "bool")),
    ],
)
def test_what_is_kept_keeps_its_number_format(form: Any) -> None:
    check_optimizer(Keeping(form=form), learning_rate=1e-3)


class Splitting(CountingConfig):
    """Weight decay for matrices alone, which come last."""

    def make(self, groups: Groups) -> torch.optim.Optimizer:
        split: Groups = []
        for group in groups:
            for vectors in (True, False):
                chosen = [each for each in group["params"] if (each.dim() < 2) == vectors]
                split.append({"params": chosen, "weight_decay": 0.0 if vectors else 0.1})
        return torch.optim.AdamW([*split, {"params": []}])


def test_groups_may_be_split() -> None:
    """Each parameter keeps its factor of the rate, and goes on from its own state."""
    check_optimizer(Splitting())


class Forgetful(CountingConfig):
    """It keeps something where nobody looks for it."""

    def make(self, groups: Groups) -> torch.optim.Optimizer:
        class Hidden(Counting):
            calls = 0

            def step(self, closure: object = None) -> None:
                self.calls += 1
                super().step(closure)
                with torch.no_grad():
                    for group in self.param_groups:
                        for parameter in group["params"]:
                            parameter.mul_(1 - 1e-3 * self.calls)

        return Hidden(groups)


class Listing(CountingConfig):
    """It keeps a list."""

    def make(self, groups: Groups) -> torch.optim.Optimizer:
        class Listed(Counting):
            def step(self, closure: object = None) -> None:
                super().step(closure)
                for state in self.state.values():
                    state["past"] = [1, 2]

        return Listed(groups)


class Backwards(CountingConfig):
    """It climbs."""

    def make(self, groups: Groups) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, maximize=True)


def test_the_checks_find_what_does_not_hold() -> None:
    with pytest.raises(AssertionError, match="goes on otherwise from what a checkpoint holds"):
        check_optimizer(Forgetful(), learning_rate=1e-2)
    with pytest.raises(AssertionError, match=r"20 steps at a rate of 0\.01 took the loss from"):
        check_optimizer(Backwards(), learning_rate=1e-2)
    with pytest.raises(UsageError, match="Listed keeps past, list, for each parameter"):
        check_optimizer(Listing(), learning_rate=1e-2)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_steps_are_those_of_torch(clip: float | None) -> None:
    """With clipping, and rates that change."""
    torch.manual_seed(1)
    model = build_model(ModelConfig.model_validate(SHAPE), 12, 12)
    theirs = [nn.Parameter(parameter.detach().clone()) for parameter in model.parameters()]
    strategy = ParallelStrategy(model, ProcessGroup())
    ours = make_optimizer(model, OfTorch(name="Adagrad", options={"lr_decay": 0.1}), clip, strategy)
    reference = torch.optim.Adagrad(theirs, lr_decay=0.1)
    for rate in (0.1, 0.01, 0.02):
        for mine, other in zip(model.parameters(), theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        if clip is not None:
            nn.utils.clip_grad_norm_(theirs, clip)
        reference.param_groups[0]["lr"] = rate
        reference.step()
        ours.step(rate, torch.tensor(1.0))
        for mine, other in zip(model.parameters(), theirs, strict=True):
            torch.testing.assert_close(mine, other)


def test_parameters_without_a_gradient_keep_nothing() -> None:
    """A layer that was left out of all updates so far; a checkpoint can be read all the same."""
    model = build_model(ModelConfig.model_validate(SHAPE), 12, 12)
    strategy = ParallelStrategy(model, ProcessGroup())
    first, second = (make_optimizer(model, CountingConfig(), None, strategy) for _ in range(2))
    name, parameter = next(iter(model.named_parameters()))
    parameter.grad = torch.ones_like(parameter)
    first.step(0.1, torch.tensor(1.0))
    kept = {key: tensor.clone() for key, tensor in first.state().items()}
    assert kept.keys() == {f"mean.{name}", f"number.times.{name}", "group.steps.0", "group.nesterov.0"}
    second.load_state(kept, 1)
    again: dict[str, Tensor] = second.state()
    assert all(torch.equal(again[key], tensor) for key, tensor in kept.items())
    for key in ("mean.other", "number.times.other", "group.steps.1"):
        with pytest.raises(ModelError, match=f"does not fit the model: {key}"):
            second.load_state({**kept, key: torch.zeros(())}, 1)


@pytest.mark.usefixtures("counting")
def test_a_run_goes_on_exactly(run_whole_and_halved: RunTwice) -> None:
    """The model knows nothing of its optimizer: where that is not known, it can be read."""
    settings: dict[str, object] = {
        "optimizer": "counting",
        "rate_factors": {"encoder.*": 0.5},
        "ema": {"decay": 0.9},
        "validation": {"every": 10},
    }
    whole, halved = run_whole_and_halved(20, **settings)
    assert halved == whole
    plugins._registered.clear()
    choice._TABLES["optimizer"].others.clear()
    load_model(halved.directory.checkpoints()[-1].path)
