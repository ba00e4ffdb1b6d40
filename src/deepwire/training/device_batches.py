"""Batches as tensors on the device; on a GPU they are made and copied while it computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from deepwire.data.batches.batching import StreamPosition, UpdateStream
from deepwire.data.batches.collator import Batch

Item = TypeVar("Item")


@contextmanager
def prefetched(items: Iterator[Item], depth: int = 4) -> Iterator[Iterator[Item]]:
    """The same items in the same order, up to `depth` of them made ahead in a thread.

    What `items` raises is raised where the item would have come. Leaving the block ends the thread, after the
    item it is working on.

        with prefetched(stream.updates(position)) as updates:
            for update, position in updates:
                ...
    """
    with ThreadPoolExecutor(1, "prefetch") as thread:
        ahead = deque(thread.submit(next, items, None) for _ in range(depth))
        try:
            yield _taken(thread, ahead, items)
        finally:
            thread.shutdown(cancel_futures=True)


def _taken(
    thread: ThreadPoolExecutor, ahead: deque[Future[Item | None]], items: Iterator[Item]
) -> Iterator[Item]:
    """The items that were made ahead; for each that is taken another one is begun."""
    while (item := ahead.popleft().result()) is not None:
        ahead.append(thread.submit(next, items, None))
        yield item


@dataclass(frozen=True)
class DeviceBatch:
    """One forward pass on the device; int64, padded with PAD.

    Attributes:
        source: ``[B, S]``.
        target_input: ``[B, T]``.
        target_output: ``[B, T]``.
        languages: ``[B]``, index of the target language of each row; None with one direction.
        links: ``[links, 3]``, row, place in ``target_output`` and place in ``source`` of subwords that belong
            together; None where nobody asks.
    """

    source: Tensor
    target_input: Tensor
    target_output: Tensor
    languages: Tensor | None = None
    links: Tensor | None = None

    def cut(self, pieces: int) -> list[DeviceBatch]:
        """The rows in so many pieces of about the same size, or one a row where there are fewer."""
        pieces = min(pieces, len(self.source))
        if pieces == 1:
            return [self]
        sides = (side.tensor_split(pieces) for side in (self.source, self.target_input, self.target_output))
        parts = [DeviceBatch(*part) for part in zip(*sides, strict=True)]
        if self.links is not None:
            ends = list(accumulate(len(part.source) for part in parts))
            parts = [
                replace(part, links=_links_of(self.links, end - len(part.source), end))
                for part, end in zip(parts, ends, strict=True)
            ]
        if self.languages is None:
            return parts
        languages = self.languages.tensor_split(pieces)
        return [replace(part, languages=rows) for part, rows in zip(parts, languages, strict=True)]


def _links_of(links: Tensor, first: int, end: int) -> Tensor:
    """The links of rows `first` to `end`, counted from there."""
    chosen = links[(links[:, 0] >= first) & (links[:, 0] < end)]
    return chosen - chosen.new_tensor([first, 0, 0])


@dataclass(frozen=True)
class DeviceUpdate:
    """One update on the device.

    Attributes:
        number: Which update this is, from 1.
        epoch: Which epoch it belongs to.
        target_tokens: Real target tokens of the whole update.
        batches: The forward passes of this process; it may have none.
        lines: ``[pairs]``, indices of all its sentence pairs in the store.
        after: The position of the stream after it.
    """

    number: int
    epoch: int
    target_tokens: int
    batches: tuple[DeviceBatch, ...]
    lines: np.ndarray
    after: StreamPosition


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Copy a batch to ``device``, without waiting for a GPU."""
    return DeviceBatch(
        _tensor(batch.source, device),
        _tensor(batch.target_input, device),
        _tensor(batch.target_output, device),
        None if batch.target_languages is None else _tensor(batch.target_languages, device),
        None if batch.links is None else _tensor(batch.links, device),
    )


def feed(stream: UpdateStream, start: StreamPosition, device: torch.device) -> Generator[DeviceUpdate]:
    """The updates from ``start`` on, on ``device``, without end."""
    updates = (
        DeviceUpdate(
            update.number,
            update.epoch,
            update.target_tokens,
            tuple(to_device(batch, device) for batch in update.batches),
            update.lines,
            after,
        )
        for update, after in stream.updates(start)
    )
    if device.type != "cuda":
        yield from updates
        return
    with prefetched(updates) as ahead:
        yield from ahead


def _tensor(values: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
