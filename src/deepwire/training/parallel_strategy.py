"""Where parameters, gradients and moments are, among the processes that train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deepwire.checkpoint.store import model_parameters
from deepwire.distributed.process_group import ProcessGroup
from deepwire.model.translation_model import LossSums, TranslationModel
from deepwire.training.device import DeviceBatch

LossFunction = Callable[..., LossSums]
"""The signature of ``TranslationModel.loss``."""


class Snapshot(NamedTuple):
    """The tensors of a checkpoint: of model and optimizer, whole tensors by name; empty where nobody saves.

    Attributes:
        parameters: Of the model.
        moments: Of the optimizer.
    """

    parameters: Mapping[str, Tensor]
    moments: Mapping[str, Tensor]


class ParallelStrategy:
    """Every process holds all of the model.

    Attributes:
        retries: Whether a pass may be given up in one process and made again: nothing is exchanged within it.
    """

    retries = True

    def __init__(self, model: TranslationModel, processes: ProcessGroup) -> None:
        self.model, self.processes = model, processes
        processes.broadcast_tensors(list(model_parameters(model).values()))

    @property
    def loss(self) -> LossFunction:
        """The function that training calls."""
        return self.model.loss

    def passes(self, share: Sequence[DeviceBatch]) -> Sequence[DeviceBatch]:
        """The forward passes that this process makes for its share of an update."""
        return share

    def local(self, tensor: Tensor) -> Tensor:
        """The part of this process of a parameter or gradient, in the same memory."""
        return tensor

    def total_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The length of the whole gradient, a scalar, of what this process holds of it."""
        return nn.utils.get_total_norm(gradients)

    def all_reduce_tensors(self, learning: Sequence[nn.Parameter], sums: Sequence[Tensor]) -> list[Tensor]:
        """Make the gradients of the parameters, and the sums given back, those of all processes.

        A parameter without a gradient here has one elsewhere.
        """
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in learning]
        reduced = self.processes.all_reduce_tensors([*gradients, *sums])
        for parameter, gradient in zip(learning, reduced[: len(learning)], strict=True):
            parameter.grad = gradient
        return reduced[len(learning) :]

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """Fill tensors of this process by name from whole ones, which only the main process has."""
        for name, tensor in stored.items():
            tensors[name].copy_(tensor)
        self.processes.broadcast_tensors(list(tensors.values()))

    def snapshot(self, moments: Mapping[str, Tensor]) -> Snapshot:
        """The tensors that a checkpoint is written from.

        Raises:
            ResourceError: If the processes do not have the same weights any more.
        """
        parameters = model_parameters(self.model)
        self.processes.require_same(list(parameters.values()), "the weights")
        return Snapshot(parameters, moments)

    @contextmanager
    def whole(self) -> Iterator[TranslationModel]:
        """The model as it is used outside of training."""
        yield self.model
