"""Batches of sentences: made by length, padded, compacted when sentences end, decoded several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from deepwire.data.vocabulary import PAD

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_PARALLEL_BATCHES = 8
"""More are not decoded at a time: each has logits and states in memory, and all share one interpreter."""
# Finished sentences leave a batch as soon as they are this part of it.
_COMPACTION_SHARE = 8


class Cancelled(Exception):  # noqa: N818 - not an error: nobody waits for the result
    """The work was called off."""


def batches_by_length(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Groups of indices into `lengths`, longest first, of at most `tokens` padded subwords each.

    A sentence longer than `tokens` is a batch of its own. Every index occurs exactly once.
    """
    batches: list[list[int]] = []
    batch: list[int] = []
    widest = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and (len(batch) + 1) * widest > tokens:
            batches.append(batch)
            batch = []
        widest = lengths[index] if not batch else widest
        batch.append(index)
    return [*batches, batch] if batch else batches


def pad_batch(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Id sequences as one tensor `[N, longest]` (int64), padded on the right with PAD."""
    width = max(len(ids) for ids in sequences)
    rows = [[*ids, *[PAD] * (width - len(ids))] for ids in sequences]
    return torch.tensor(rows, dtype=torch.int64).to(device)


def batch_compaction(ended: Sequence[bool]) -> tuple[list[int], list[int]]:
    """The indices of the sentences that leave the batch now, and of those that stay, in order.

    None leave where too few have ended to pay for copying the state of the others. Some that have ended stay
    for a while, so that batches come in few sizes: products are made ready for each that they meet, which
    takes about as long as a small one itself (see `deepwire.data.batches.collator.whole_rows`).
    """
    finished = [index for index, has_ended in enumerate(ended) if has_ended]
    most = len(ended) - _batch_size(len(ended) - len(finished))
    if most <= 0 or most * _COMPACTION_SHARE < len(ended):
        return [], list(range(len(ended)))
    leaving = finished[:most]
    gone = set(leaving)
    return leaving, [index for index in range(len(ended)) if index not in gone]


def _batch_size(sentences: int) -> int:
    """The next size of a batch, of four between a power of two and its double: 8, 10, 12, 14, 16, 20, ..."""
    step = 1 << max(0, sentences.bit_length() - 3)
    return -(-sentences // step) * step


def ordered_map(
    work: Callable[[Item, threading.Event], Result], items: Sequence[Item], device: torch.device
) -> list[Result]:
    """`work(item, stop)` of each item, in their order; on a CPU several items at a time, in threads.

    A core for each batch does more than all cores for one: the threads that share a product wait for each
    other after every operation, and operations too small to share leave all but one of them idle.

    On a CPU there are as many items at a time as torch has threads (8 at most), each with its share of them.
    `stop` is set when the results are no longer wanted, as after Ctrl-C or an error in another item: `work`
    may then raise `Cancelled`.
    """
    stop, threads = threading.Event(), torch.get_num_threads()
    workers = min(threads, len(items), MAX_PARALLEL_BATCHES) if device.type == "cpu" else 1
    if workers <= 1:
        return [work(item, stop) for item in items]
    set_threads = partial(torch.set_num_threads, threads // workers)
    try:
        with ThreadPoolExecutor(workers, "batch", initializer=set_threads) as pool:
            try:
                return list(pool.map(lambda item: work(item, stop), items))
            finally:
                stop.set()
    finally:
        # A thread's number holds for threads that begin later, too.
        torch.set_num_threads(threads)
