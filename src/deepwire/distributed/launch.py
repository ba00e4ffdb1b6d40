"""The process group of a command: what torchrun started, forks of this process, or this one alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deepwire.distributed.process_group import ProcessGroup


@contextmanager
def join_process_group(wanted: Callable[[], int] = lambda: 1) -> Iterator[ProcessGroup]:
    """The process group of this command: what torchrun started; else `wanted()` processes of this machine.

    When a process fails, the first to do so lets its error out; the others end silently, because theirs are
    the same or mere consequences.
    """
    # Only torchrun sets the first; the second is found in the environment of many a cluster.
    if "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ["WORLD_SIZE"]) > 1:
        from deepwire.distributed.distributed_group import TorchrunGroup, process_group_context

        with process_group_context(TorchrunGroup()) as processes:
            yield processes
    elif (count := wanted()) > 1:
        from deepwire.distributed.forked_group import fork_process_group

        with fork_process_group(count) as group:
            yield group
    else:
        yield ProcessGroup()
