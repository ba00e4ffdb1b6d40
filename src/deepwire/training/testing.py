"""Checks of optimizers and schedules on a small model; for tests, also of plugins.

`check_optimizer` and `check_schedule` take the settings of one, as an object, a mapping or its name, and
raise `AssertionError` with what is wrong, as the checks of `deepwire.testing` do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from deepwire.config.counts import as_float, shown
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import UsageError
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import TOLERANCE, Settings, as_assertion, batch, section_of, small_model
from deepwire.training.freezing import with_rate_factors
from deepwire.training.optimizers.optimizer import Optimizer, OptimizerSection, StepResult, make_optimizer
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.schedule import ScheduleSection

_STEPS, _GO_ON = 20, 3


def check_optimizer(settings: OptimizerSection | Settings | str, learning_rate: float = 1e-3) -> None:
    """Check that an optimizer learns, leaves out what is not finite, and goes on from a checkpoint exactly.

    Twenty steps make the loss of a batch smaller and move every parameter. Half the rate with a factor of 2
    (`training.rate_factors`) is the whole rate. A step whose loss is not a number changes no parameter and
    nothing that the optimizer keeps. With what a checkpoint holds of it, another one takes the same steps,
    bit for bit.

    Args:
        settings: The optimizer, such as `{"type": "lion", "weight_decay": 0.1}`.
        learning_rate: At which it learns.

    Raises:
        AssertionError: Something does not hold.
        UsageError: The settings are wrong, or it keeps what no checkpoint can hold.
    """
    chosen: OptimizerSection = section_of(OptimizerSection, settings)  # type: ignore[type-abstract]
    with as_assertion(f"optimizer {chosen.type}"):
        model, first = _model_with(chosen)
        begun = _parameters(model)
        _check_factors(chosen, learning_rate)
        before = _loss(model).item()
        for _ in range(_STEPS):
            _step(model, first, learning_rate)
        after, rate = _loss(model).item(), f"{learning_rate:g}"
        assert after < before, f"{_STEPS} steps at a rate of {rate} took the loss from {before} to {after}"
        for name, value in _parameters(model).items():
            assert torch.isfinite(value).all(), f"{name} is not finite after {_STEPS} steps"
            assert not torch.equal(value, begun[name]), f"{name} did not move in {_STEPS} steps"
        _check_that_nothing_changes(model, first, learning_rate)
        _check_that_it_goes_on(model, first, chosen, learning_rate)


def check_schedule(settings: ScheduleSection | Settings | str, max_updates: int = 100) -> None:
    """Check that the rates of a schedule are numbers that follow from the number of the update alone.

    None is negative and some are above 0. A run of twice as many updates has the same rates unless the
    schedule says that it follows the length. A run of half as many has a schedule, too (`shortened`).

    Args:
        settings: The schedule.
        max_updates: Length of the run.

    Raises:
        AssertionError: Something does not hold.
        UsageError: The settings are wrong.
    """
    chosen: ScheduleSection = section_of(ScheduleSection, settings)  # type: ignore[type-abstract]
    with as_assertion(f"schedule {chosen.type}"):
        try:
            chosen.check(max_updates)
        except ValueError as error:
            raise UsageError(f"settings: {error}") from None
        _check_schedule(chosen, max_updates)


def _check_schedule(chosen: ScheduleSection, max_updates: int) -> None:
    rates = _rates(chosen, max_updates, range(1, max_updates + 1))
    assert any(rates), "all rates are 0"
    backwards = _rates(chosen, max_updates, range(max_updates, 0, -1))
    assert backwards[::-1] == rates, "the rate of an update depends on those that were asked for before it"
    if not chosen.follows_length:
        longer = _rates(chosen, 2 * max_updates, range(1, max_updates + 1))
        assert longer == rates, "a longer run has other rates, and follows_length does not say so"
    half = max(1, max_updates // 2)
    constants = chosen.shortened(half, max_updates)
    _rates(section_of(type(chosen), {**chosen.model_dump(), **constants}), half, range(1, half + 1))


def _rates(section: ScheduleSection, max_updates: int, updates: Iterable[int]) -> list[float]:
    section.check(max_updates)
    schedule, rates = section.build(d_model=16, max_updates=max_updates), list[float]()
    for update in updates:
        given: object = schedule(update)
        rate = as_float(given)
        assert math.isfinite(rate), f"the rate of update {update} is {shown(given)}"
        assert rate >= 0, f"the rate of update {update} is {shown(given)}"
        rates.append(rate)
    return rates


def _model_with(section: OptimizerSection, factor: float = 1.0) -> tuple[TranslationModel, Optimizer]:
    model = small_model({})
    scales = with_rate_factors({}, model, {"*": factor})
    return model, make_optimizer(model, section, 1.0, ParallelStrategy(model, ProcessGroup()), scales=scales)


def _loss(model: TranslationModel) -> Tensor:
    return model.loss(*batch(), 0.1).smoothed


def _step(model: TranslationModel, optimizer: Optimizer, rate: float, factor: float = 1.0) -> StepResult:
    optimizer.zero_grad()
    loss = factor * _loss(model)
    torch.autograd.backward(loss)
    return optimizer.step(rate, loss.detach())


def _parameters(model: TranslationModel) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def _kept(optimizer: Optimizer) -> dict[str, Tensor]:
    return {key: tensor.clone() for key, tensor in optimizer.state().items()}


def _check_factors(section: OptimizerSection, rate: float) -> None:
    (one, whole), (two, half) = _model_with(section), _model_with(section, factor=2.0)
    for _ in range(_GO_ON):
        _step(one, whole, rate)
        _step(two, half, rate / 2)
    expected = _parameters(one)
    for name, value in _parameters(two).items():
        same = torch.allclose(value, expected[name], atol=TOLERANCE)
        assert same, f"half the rate with a factor of 2 moves {name} elsewhere than the whole rate"


def _check_that_nothing_changes(model: TranslationModel, optimizer: Optimizer, rate: float) -> None:
    parameters, kept = _parameters(model), _kept(optimizer)
    assert not bool(_step(model, optimizer, rate, math.nan).finite)
    optimizer.undo_steps(1)
    for name, value in _parameters(model).items():
        assert torch.equal(value, parameters[name]), f"a step that is not finite moved {name}"
    for key, value in _kept(optimizer).items():
        assert torch.equal(value, kept[key]), f"a step that is not finite changed {key}"


def _check_that_it_goes_on(
    model: TranslationModel, optimizer: Optimizer, section: OptimizerSection, rate: float
) -> None:
    other, second = _model_with(section)
    other.load_state_dict(model.state_dict())
    second.load_state(_kept(optimizer), optimizer.steps)
    for _ in range(_GO_ON):
        _step(model, optimizer, rate)
        _step(other, second, rate)
    expected = _parameters(model)
    for name, value in _parameters(other).items():
        assert torch.equal(value, expected[name]), f"{name} goes on otherwise from what a checkpoint holds"
