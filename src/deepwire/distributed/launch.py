"""Which processes take part in a job: those that torchrun started, some made here, or this one alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deepwire.distributed.process_group import ProcessGroup


@contextmanager
def join_process_group(wanted: Callable[[], int] = lambda: 1) -> Iterator[ProcessGroup]:
    """The processes of this job: those that torchrun started; else `wanted()` of this machine.

    When a process fails, the first to do so lets its error out; the others end silently, because theirs are
    the same or mere consequences.
    """
    # Only torchrun sets the first; the second is found in the environment of many a cluster.
    if "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ["WORLD_SIZE"]) > 1:
        from deepwire.distributed.torchrun_group import connected

        with connected() as processes:
            yield processes
    elif (count := wanted()) > 1:
        from deepwire.distributed.forked_group import forked

        with forked(count) as own:
            yield own
    else:
        yield ProcessGroup()
