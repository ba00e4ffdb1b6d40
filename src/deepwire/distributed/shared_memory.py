"""Sums of tensors over the processes of one machine, through memory that all of them see.

A gradient is as large as the model. Over a socket each process would write it into the kernel and read
another one out of it; here it is written once and read where it lies.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# Tensors begin where vector instructions like them to.
_ALIGNMENT = 64


class SharedMemoryReduce:
    """A place for the tensors of each process, made by the first of them before it forks the others.

    Args:
        count: How many processes there will be.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # Memory with a number like a file's, which the others inherit; it goes when all of them are gone.
        self._file = os.memfd_create("deepwire-sums")
        self._memory = torch.empty(0, dtype=torch.uint8)

    def close(self) -> None:
        """Give the memory back; this process can add up no more."""
        self._memory = torch.empty(0, dtype=torch.uint8)
        os.close(self._file)

    @torch.no_grad()
    def all_reduce_tensors(self, tensors: Sequence[Tensor], rank: int, barrier: Callable[[], None]) -> None:
        """Overwrite CPU tensors, of the same shapes in each process, with their sums over the processes.

        The order of additions is the same everywhere, and so are the bits.

        Args:
            tensors: Those of this process.
            rank: Its number.
            barrier: Returns when all processes have called it.
        """
        places = self._places(tensors)
        for place, tensor in zip(places[rank], tensors, strict=True):
            place.copy_(tensor)
        barrier()
        first, second, *others = places
        for index, tensor in enumerate(tensors):
            torch.add(first[index], second[index], out=tensor)
            for other in others:
                tensor += other[index]
        # Nobody writes again before all have read.
        barrier()

    def _places(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """For each process, views of its part of the memory with the kinds and shapes of the tensors."""
        sizes = [-(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in tensors]
        needed = sum(sizes) * self._count
        if self._memory.numel() < needed:
            os.ftruncate(self._file, needed)
            self._memory = torch.frombuffer(mmap.mmap(self._file, 0), dtype=torch.uint8)
        parts = torch.split(self._memory[:needed], sizes * self._count)
        views = [
            part[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for part, tensor in zip(parts, [*tensors] * self._count, strict=True)
        ]
        return [views[first : first + len(tensors)] for first in range(0, len(views), len(tensors))]
