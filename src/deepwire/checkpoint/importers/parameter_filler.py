"""Puts foreign tensors into a model: every tensor must find its destination, and every parameter a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from deepwire.checkpoint.importers.importer import Destination, Destinations
from deepwire.errors import ModelError
from deepwire.model.encoder_decoder import TranslationModel

_SHOWN = 4
_CONSTANT = 1e-6
"""Weights that are not learned are equal to the constants of this project up to rounding."""


class ParameterFiller:
    """Fills the parameters of a model and remembers what did not fit.

    Args:
        model: What is filled.
        path: What messages call the checkpoint.
    """

    def __init__(self, model: TranslationModel, path: Path) -> None:
        self._path = path
        self._parameters = dict(model.named_parameters(remove_duplicate=False))
        self._own = [name for name, _ in model.named_parameters()]
        self._constants = dict(model.named_buffers())
        self._filled = {
            id(value): torch.zeros(value.size(0) if value.dim() else 1, dtype=torch.bool)
            for value in self._parameters.values()
        }
        self._known = self._parameters.keys() | self._constants.keys()
        self.unknown: list[str] = []
        self._misfits: list[str] = []

    def put(self, name: str, value: Tensor, destinations: Destinations) -> None:
        """Copy the tensor called `name` to its destinations; none says that nothing depends on it."""
        if not destinations:
            return
        value = value.to(torch.float32)
        if not bool(torch.isfinite(value).all()):
            self._misfits.append(f"{name} is not finite")
        elif any(name not in self._known for name, _, _ in destinations):
            self.unknown.append(name)
        else:
            self._put(name, value, destinations)

    def finish(self) -> None:
        """See that nothing is unknown, nothing missing, and everything of the right shape.

        Raises:
            ModelError: Naming the first of each kind, and how many there are.
        """
        missing = [name for name in self._own if not bool(self._filled[id(self._parameters[name])].all())]
        wrong = [
            _listed(self.unknown, "has no place for {} of the checkpoint's tensors"),
            _listed(missing, "finds no value for {} of its parameters"),
            _listed(self._misfits, "cannot take {} of the checkpoint's tensors", between="; "),
        ]
        if any(wrong):
            raise ModelError(
                f"{self._path}: the architecture {'; it '.join(text for text in wrong if text)}",
                "is it the architecture of this checkpoint? Settings: --run RUNFILE, or model.key=value",
            )

    def _put(self, name: str, value: Tensor, destinations: Destinations) -> None:
        targets = [self._target(destination) for destination in destinations]
        sizes = [target.size(0) for target, _ in targets]
        pieces = [value]
        if len(targets) > 1 and value.dim() and value.size(0) == sum(sizes):
            pieces = list(torch.split(value, sizes))
        if [_without_ones(piece) for piece in pieces] != [_without_ones(target) for target, _ in targets]:
            shapes = " and ".join(str(list(target.shape)) for target, _ in targets)
            self._misfits.append(f"{name} is {list(value.shape)}, not {shapes}")
            return
        for piece, (target, filled) in zip(pieces, targets, strict=True):
            piece = piece.reshape(target.shape)
            if filled is None:
                if not _is_constant(piece, target):
                    self._misfits.append(f"{name} is learned, but the architecture has a constant there")
            elif bool(filled.any()) and not torch.equal(target, piece):
                self._misfits.append(f"{name} differs from another tensor that the architecture ties to it")
            else:
                target.copy_(piece)
                filled.fill_(True)

    def _target(self, destination: Destination) -> tuple[Tensor, Tensor | None]:
        """The values at a destination, and which of them are filled; None for a constant."""
        parameter = self._parameters.get(destination.name)
        if parameter is None:
            return self._constants[destination.name], None
        filled = self._filled[id(parameter)]
        part = slice(0, len(filled))
        if destination.parts > 1:
            size = len(filled) // destination.parts
            part = slice(destination.part * size, (destination.part + 1) * size)
        return parameter.detach()[part], filled[part]


def _without_ones(value: Tensor) -> list[int]:
    return [size for size in value.shape if size != 1]


def _is_constant(weights: Tensor, constant: Tensor) -> bool:
    """Whether weights that combine layers are the constant ones; those above the diagonal are never used."""
    used = torch.ones(weights.shape[:2]).tril().unsqueeze(-1)
    return bool(((weights - constant) * used).abs().max() < _CONSTANT)


def _listed(names: Sequence[str], text: str, between: str = ", ") -> str:
    if not names:
        return ""
    more = f"{between}..." if len(names) > _SHOWN else ""
    return f"{text.format(len(names))} ({between.join(names[:_SHOWN])}{more})"


def fill_parameters(
    model: TranslationModel, path: Path, values: Iterable[tuple[str, Tensor, Destinations | None]]
) -> None:
    """Fill all parameters of a model from foreign tensors; None as destinations says that a name is unknown.

    Raises:
        ModelError: Something is unknown, missing, of another shape, or not finite.
    """
    filler = ParameterFiller(model, path)
    with torch.no_grad():
        for name, value, destinations in values:
            if destinations is None:
                filler.unknown.append(name)
            else:
                filler.put(name, value, destinations)
    filler.finish()
