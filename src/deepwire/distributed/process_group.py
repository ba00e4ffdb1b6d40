"""The processes that train one model, and their collectives: all-reduce, broadcast, gather.

Training is written once, for any number of processes. With one, each collective returns what it is given, and
torch.distributed is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class ProcessGroup:
    """One process, alone.

    Collectives must be called by all processes in the same order.

    Attributes:
        rank: The number of this process, from 0.
        count: How many there are.
        local_rank, local_count: The same on this machine.
    """

    def __init__(self, rank: int = 0, count: int = 1, local_rank: int = 0, local_count: int = 1) -> None:
        self.rank, self.count = rank, count
        self.local_rank, self.local_count = local_rank, local_count

    after_stop = ""
    """The advice to the user when a signal has ended a run."""

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and talks to the user."""
        return self.rank == 0

    def threads(self, wanted: int | None) -> int:
        """CPU threads of this process, where so many are wanted; None = as torch chooses."""
        return wanted or torch.get_num_threads()

    def all_reduce_numbers(self, numbers: Sequence[float]) -> list[float]:
        """The sums over the processes. The numbers are in host memory; the device is not waited for."""
        return list(numbers)

    def all_reduce_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums over the processes of tensors that have the same shapes in each.

        They may lie in the memory of the tensors, whose own numbers are lost then.
        """
        return list(tensors)

    def broadcast_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite the tensors with those of the main process."""

    def gather(self, value: object) -> list[object]:
        """The value of each process in the order of ranks; values are what JSON can hold."""
        return [value]

    def broadcast_value(self, value: object) -> object:
        """The value of the main process; those of others are ignored. Values are what JSON can hold."""
        return value

    def run_on_main_first(self, work: Callable[[], Result]) -> Result:
        """Do the same work in every process, in the main process first; if it fails there, nobody else tries.

        It may take any time.
        """
        return work()

    def require_same(self, tensors: Sequence[Tensor], name: str) -> None:
        """Check that the tensors are the same in all processes, bit for bit.

        Raises:
            ResourceError: If they are not; `name` says what they are.
        """
