"""Models that do not fit: each process holds a part of every parameter, gradient and moment (ZeRO).

Rajbhandari et al. 2020, stage 3, by torch's `fully_shard`: the parameters of a sub-layer are brought together
for its pass and given up behind it; its gradients are added up and cut into parts in the backward pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from deepwire.checkpoint.store import model_parameters
from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.distributed.process_group import ProcessGroup
from deepwire.model.translation_model import TranslationModel
from deepwire.training.device import DeviceBatch
from deepwire.training.parallel_strategy import LossFunction, ParallelStrategy, Snapshot

# By these a stack calls its sub-layers in training.
_METHODS = ("forward_beside", "project", "packed", "remember")


class ShardedStrategy(ParallelStrategy):
    """Every process holds its part of each tensor, and all of those that are a single number.

    All processes must make the same number of passes, and a pass that fails in one cannot be made again.
    """

    retries = False

    def __init__(
        self, model: TranslationModel, processes: ProcessGroup, build: Callable[[], TranslationModel]
    ) -> None:
        super().__init__(model, processes)
        self._build = build
        self._device = next(model.parameters()).device
        self._mesh = init_device_mesh(self._device.type, (processes.count,))
        # Results of sub-layers that are views are never changed in place here, which torch warns of.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        _shard(model, self._mesh)
        # One sentence without a word, into the first language.
        nothing = ([[EOS]], [[BOS]], [[PAD]], [0])
        self._nothing = DeviceBatch(*(torch.tensor(rows, device=self._device) for rows in nothing))

    @property
    def loss(self) -> LossFunction:
        """The model itself: its parts meet in its hooks."""
        return self.model

    def passes(self, share: Sequence[DeviceBatch]) -> Sequence[DeviceBatch]:
        """As many passes as the process with the most has; those without a target token add nothing."""
        most = max(cast("list[int]", self.processes.gather(len(share))))
        return [*share, *[self._nothing] * (most - len(share))]

    def local(self, tensor: Tensor) -> Tensor:
        """The part of this process."""
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def total_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The length of the whole gradient, of its parts."""
        parts, numbers = ([each for each in gradients if bool(each.dim()) is part] for part in (True, False))
        of_parts = self.processes.all_reduce_tensors([nn.utils.get_total_norm(parts).square()])[0]
        return (of_parts + sum(number.square() for number in numbers)).sqrt()

    def all_reduce_tensors(self, learning: Sequence[nn.Parameter], sums: Sequence[Tensor]) -> list[Tensor]:
        """Add up the sums, and gradients of single numbers; others were added up in the backward passes."""
        numbers = [parameter for parameter in learning if not parameter.dim()]
        return super().all_reduce_tensors(numbers, sums)

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        """Hand the parts of whole tensors to the processes."""
        for name, tensor in tensors.items():
            whole = torch.zeros(tensor.shape, device=self._device)
            if name in stored:
                whole.copy_(stored[name])
            if isinstance(tensor, DTensor):
                tensor.copy_(distribute_tensor(whole, self._mesh, tensor.placements))
            else:
                self.processes.broadcast_tensors([whole])
                tensor.copy_(whole)

    def snapshot(self, moments: Mapping[str, Tensor]) -> Snapshot:
        """The parts brought together, one tensor after the other, in the host memory of the main process."""
        return Snapshot(self._on_host(model_parameters(self.model)), self._on_host(moments))

    @contextmanager
    def whole(self) -> Iterator[TranslationModel]:
        """A copy with whole parameters: without gradients and moments it takes a quarter of the memory."""
        with self._device:
            model = self._build().to(self._device)
        parts = model_parameters(self.model)
        for name, tensor in model_parameters(model).items():
            tensor.copy_(_whole(parts[name]))
        yield model

    def _on_host(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        kept = {}
        for name, tensor in tensors.items():
            whole = _whole(tensor)  # all processes take part
            if self.processes.main:
                kept[name] = whole.cpu()
        return kept


def _shard(model: TranslationModel, mesh: DeviceMesh) -> None:
    # A single number has no parts.
    whole = {parameter for parameter in model.parameters() if not parameter.dim()}
    for stack in model.stacks().values():
        for part in chain.from_iterable(stack.sublayers()):
            if next(part.parameters(), None) is None:
                continue
            fully_shard(part, mesh=mesh, ignored_params=whole)
            for name in _METHODS:
                if hasattr(part, name):
                    register_fsdp_forward_method(part, name)
    fully_shard(model, mesh=mesh, ignored_params=whole)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # Sums and not means: losses are divided by the target tokens of all.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
