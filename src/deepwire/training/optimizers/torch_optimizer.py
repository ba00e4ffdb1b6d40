"""Optimizers that are classes of `torch.optim`, or derived from its base as those of other packages are."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from deepwire.errors import UsageError
from deepwire.training.optimizers.optimizer import (
    KeptTensor,
    OptimizerContext,
    OptimizerSection,
    Step,
    UpdateRule,
)

if TYPE_CHECKING:
    from torch.optim import Optimizer as TorchOptimizer

Groups = list[dict[str, Any]]
_NUMBER, _GROUP = "number", "group"
_NUMBERS: Mapping[type, torch.dtype] = {bool: torch.bool, int: torch.int64, float: torch.float64}


class TorchOptimizerSection(OptimizerSection):
    """Base of the settings of an optimizer of torch's interface.

    Its ``step`` is called without a closure, and only where loss and gradient are finite; to know that, each
    update waits for the device. The learning rate is that of the schedule. What it keeps in `state` of each
    parameter, tensors and numbers, and those of its `param_groups`, are in the checkpoints.
    """

    @abstractmethod
    def make(self, groups: Groups) -> TorchOptimizer:
        """The optimizer.

        Args:
            groups: Its parameter groups, each with ``params``; the rate of each is set before every step.
                They may be split, so that each parameter is in one group.
        """

    def rules(self, context: OptimizerContext) -> Sequence[UpdateRule]:
        """One, of all parameters."""
        return [TorchRule(self.make, context)]


class TorchRule(UpdateRule):
    """An optimizer of torch's interface.

    Args:
        make: Makes it for groups of parameters; each group has its own factor of the learning rate.
        context: See `OptimizerContext`.

    Raises:
        UsageError: A group has parameters of several factors of the rate.
    """

    def __init__(self, make: Callable[[Groups], TorchOptimizer], context: OptimizerContext) -> None:
        parameters = context.learning
        groups: dict[float, list[str]] = defaultdict(list)
        for name in parameters:
            groups[context.scale(name).rate].append(name)
        self.optimizer = make([{"params": [parameters[n] for n in names]} for names in groups.values()])
        name_of = {id(each): name for name, each in parameters.items()}
        in_groups = [each["params"] for each in self.optimizer.param_groups]
        names_of = [[name_of[id(each)] for each in group] for group in in_groups]
        # As torch numbers the parameters in its `state_dict`.
        self._names = [name for names in names_of for name in names]
        self._factors = [self._factor(names, context) for names in names_of]

    def _factor(self, names: Sequence[str], context: OptimizerContext) -> float:
        factors = {context.scale(name).rate for name in names} or {1.0}
        if len(factors) > 1:
            why = f"{self._kind} has one group of parameters whose factors of the rate differ"
            raise UsageError(f"training.optimizer: {why}", "leave groups apart that make was given")
        return factors.pop()

    @property
    def _kind(self) -> str:
        return type(self.optimizer).__name__

    def step(self, gradients: Mapping[str, Tensor], step: Step) -> None:
        """Set the rates, clip the gradients in place, and let it move the parameters."""
        if not bool(step.finite):
            return
        torch._foreach_div_([gradients[name] for name in self._names if name in gradients], step.scale)
        for group, factor in zip(self.optimizer.param_groups, self._factors, strict=True):
            group["lr"] = step.rate * factor
        with torch.enable_grad():  # as it is called elsewhere
            self.optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """``KEY.NAME``; of what is a plain number ``number.KEY.NAME``, and of groups ``group.KEY.INDEX``.

        Raises:
            UsageError: It keeps something else, which no checkpoint could hold.
        """
        kept, told = dict[str, Tensor](), self.optimizer.state_dict()
        for index, values in told["state"].items():
            if not isinstance(index, int):
                raise self._cannot_be_kept(f"{index}, of no parameter")
            if not isinstance(values, Mapping):
                raise self._cannot_be_kept(f"{type(values).__name__} for a parameter")
            for key, value in values.items():
                if isinstance(value, Tensor) and _can_be_kept(key):
                    kept[f"{key}.{self._names[index]}"] = value
                elif type(value) in _NUMBERS and _can_be_kept(key):
                    kept[f"{_NUMBER}.{key}.{self._names[index]}"] = _tensor(value)
                elif value is not None:
                    raise self._cannot_be_kept(f"{key}, {type(value).__name__}, for each parameter")
        for index, group in enumerate(told["param_groups"]):
            for key, value in group.items():
                if key == "lr" or not _can_be_kept(key):
                    continue
                if isinstance(value, Tensor):
                    kept[f"{_GROUP}.{key}.{index}"] = value
                elif type(value) in _NUMBERS:
                    kept[f"{_GROUP}.{key}.{index}"] = _tensor(value)
        return kept

    def _cannot_be_kept(self, what: str) -> UsageError:
        return UsageError(
            f"training.optimizer: {self._kind} keeps {what}, which no checkpoint can hold",
            "let it keep tensors and numbers of each parameter",
        )

    def state_to_fill(self, kept: Mapping[str, KeptTensor]) -> dict[str, Tensor]:
        """Tensors like those in the checkpoint, of parameters that there are."""
        mine = {(form, name) for form in ("", _NUMBER) for name in self._names}
        mine |= {(_GROUP, str(index)) for index in range(len(self._factors))}
        return {
            whole: torch.empty(each["shape"], dtype=getattr(torch, each["dtype"]))
            for whole, each in kept.items()
            if _parts(whole)[::2] in mine
        }

    def filled(self, state: Mapping[str, Tensor]) -> None:
        """Hand them to the optimizer, which puts them where their parameters are, in their number formats."""
        if not state:
            return
        told, numbers = self.optimizer.state_dict(), {name: i for i, name in enumerate(self._names)}
        for whole, value in state.items():
            form, key, of = _parts(whole)
            if form == _GROUP:
                group = told["param_groups"][int(of)]
                mine = group.get(key)
                group[key] = value.to(mine.device) if isinstance(mine, Tensor) else value.item()
            else:
                values = told["state"].setdefault(numbers[of], {})
                values[key] = value.item() if form == _NUMBER else value
        self.optimizer.load_state_dict(told)
        parameters = [each for group in self.optimizer.param_groups for each in group["params"]]
        for whole, value in state.items():
            form, key, of = _parts(whole)
            if form:
                continue
            values = self.optimizer.state[parameters[numbers[of]]]
            mine = values.get(key)
            if isinstance(mine, Tensor) and mine.dtype != value.dtype:  # torch has given it the parameter's
                values[key] = value.to(mine.device)


def _tensor(number: float) -> Tensor:
    return torch.tensor(number, dtype=_NUMBERS[type(number)])


def _can_be_kept(key: object) -> bool:
    """Whether the name under which a checkpoint has a value can be taken apart again."""
    return isinstance(key, str) and "." not in key and key not in (_NUMBER, _GROUP)


def _parts(name: str) -> tuple[str, str, str]:
    """The kind of value that a checkpoint has kept under a name, under which key, and of what."""
    key, _, of = name.partition(".")
    if key not in (_NUMBER, _GROUP):
        return "", key, of
    form, (key, _, of) = key, of.partition(".")
    return form, key, of
