"""Preparing what comes next in a background thread, while the caller works on what it has."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")

_CHECK_SECONDS = 0.1


class _End:
    """The last thing in the queue: no more items, or what was raised."""

    def __init__(self, fault: BaseException | None) -> None:
        self.fault = fault


class _Producer(Generic[Item]):
    def __init__(self, items: Iterator[Item], depth: int) -> None:
        self._items = items
        self.queue: queue.Queue[Item | _End] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        fault: BaseException | None = None
        try:
            for item in self._items:
                if not self._put(item):
                    return
        except BaseException as raised:  # whatever it is belongs to the caller
            fault = raised
        self._put(_End(fault))

    def _put(self, item: Item | _End) -> bool:
        while not self._stopped.is_set():
            try:
                self.queue.put(item, timeout=_CHECK_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


@contextmanager
def prefetched(items: Iterator[Item], depth: int = 3) -> Iterator[Iterator[Item]]:
    """The same items in the same order, up to `depth` of them made ahead in a thread.

    What `items` raises is raised where the item would have come. Leaving the block ends the thread, after the
    item it is working on.

        with prefetched(stream.updates(position)) as updates:
            for update, position in updates:
                ...
    """
    producer = _Producer(items, depth)
    try:
        yield _consume(producer)
    finally:
        producer.stop()


def _consume(producer: _Producer[Item]) -> Iterator[Item]:
    while True:
        item = producer.queue.get()
        if isinstance(item, _End):
            if item.fault is not None:
                raise item.fault
            return
        yield item
