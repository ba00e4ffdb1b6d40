"""Processes that torchrun started, on one machine or many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed.rendezvous import rendezvous

from deepwire.distributed.distributed_group import TIMEOUT, DistributedGroup, process_group_context


class TorchrunGroup(DistributedGroup):
    """The processes that the environment describes; they connect through the store of torchrun."""

    after_stop = "torchrun may report the signal below, with a traceback of its own: nothing is wrong"

    def __init__(self) -> None:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
        super().__init__(store, *(int(os.environ[name]) for name in names))


@contextmanager
def torchrun_process_group() -> Iterator[TorchrunGroup]:
    """The processes that torchrun started, for a block; see `join_process_group`."""
    with process_group_context(TorchrunGroup()) as processes:
        yield processes
