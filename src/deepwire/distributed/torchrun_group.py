"""Processes that torchrun started, on one machine or many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed.rendezvous import rendezvous

from deepwire.distributed.connected_group import PATIENCE, ConnectedGroup, together


class TorchrunGroup(ConnectedGroup):
    """The processes of the job, as the environment describes them; they meet in the store of torchrun."""

    after_stop = "torchrun may report the signal below, with a traceback of its own: nothing is wrong"

    def __init__(self) -> None:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        store, _, _ = next(rendezvous("env://", timeout=PATIENCE))
        super().__init__(store, *(int(os.environ[name]) for name in names))


@contextmanager
def connected() -> Iterator[TorchrunGroup]:
    """The processes of this job, which begin and end the block together; see `join_process_group`."""
    with together(TorchrunGroup()) as processes:
        yield processes
