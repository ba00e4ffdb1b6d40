"""The same work for many items by all cores, the results in the order of the items."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import TypeVar, cast

from deepwire.errors import DeepwireError, ResourceError

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 3
"""Items in work for each process, those that wait for their turn included: bounds the memory."""


def processes() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered_map(
    start: Callable[..., Callable[[Item], Result]],
    arguments: tuple[object, ...],
    items: Iterable[Item],
    *,
    serial: int,
) -> Iterator[Result]:
    """`start(*arguments)` called with each item, by helping processes where there are many.

    Results and errors come in the order of the items, whoever worked: what goes wrong with an item, or while
    the items are made, is raised after the results of all items before. Helping processes end with this one,
    however it ends.

    Args:
        start: A class or function of a module; called once in each process.
        arguments: Of `start`; they can be pickled.
        items: Made here, few more at a time than there are processes.
        serial: Items that this process works on before workers are started.

    Raises:
        ResourceError: a helping process died.
    """
    workers, coming = processes(), iter(items)
    work = start(*arguments)
    yield from map(work, coming if workers < 2 else islice(coming, serial))
    del work
    for first in coming:  # none, or one that begins the rest
        yield from _shared_out(start, arguments, chain([first], coming), workers)


def _shared_out(
    start: Callable[..., Callable[[Item], Result]],
    arguments: tuple[object, ...],
    items: Iterator[Item],
    workers: int,
) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    ended: DeepwireError | OSError | None = None
    # Not fork: the caller may have threads, and a forked copy of their locks would never open.
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), partial(_begin, start, arguments)
    )
    run = cast("Callable[[Item], Result]", _run)
    try:
        while True:
            try:
                item = next(items)
            except StopIteration:
                break
            except (DeepwireError, OSError) as fault:
                ended = fault
                break
            with _interrupts_held():
                waiting.append(pool.submit(run, item))
            if len(waiting) >= workers * AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if ended is not None:
            raise ended
    except BrokenProcessPool:
        raise ResourceError(
            "a process that helps to read and segment the text died",
            "it may have run out of memory: run the command again; a Python script must call this under "
            "if __name__ == '__main__'",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes that are started here never see Ctrl-C, not even before they can ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# Each helping process makes what works once, before its first item.
_own: list[Callable[[object], object]] = []


def _begin(start: Callable[..., Callable[[Item], Result]], arguments: tuple[object, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _own.append(cast("Callable[[object], object]", start(*arguments)))


def _end_with_parent() -> None:
    """A killed parent cannot end its helpers, and they would wait for items for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(item: object) -> object:
    return _own[0](item)
