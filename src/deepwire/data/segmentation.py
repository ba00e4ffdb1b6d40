"""Segmenting staged pairs: in this process, or in several when there are many."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.data.staging import Chunk, read_chunk
from deepwire.data.store import Block
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ResourceError

PAIRS_FOR_PROCESSES = 200_000
"""With fewer pairs, starting processes costs more than they save."""
_AHEAD = 4
"""Chunks in work for each process: bounds the memory."""


class Segmented(NamedTuple):
    """A chunk, segmented."""

    chunk: Chunk
    kept: NDArray[np.bool_]
    """`[pairs]`: whether neither side is too long."""
    source: Block
    """The kept pairs only."""
    target: Block


def segment(
    staged: Path, chunks: Sequence[Chunk], vocabularies: Path, max_length: int | None
) -> Iterator[Segmented]:
    """Segment chunks of a staging file, in their order.

    Args:
        staged: The staging file.
        chunks: What to read of it.
        vocabularies: Folder of the vocabularies.
        max_length: Pairs with more pieces than this on a side are left out; None keeps all.

    Raises:
        ResourceError: a helping process died.
    """
    workers = min(_processors(), len(chunks))
    if workers < 2 or sum(chunk.pairs for chunk in chunks) < PAIRS_FOR_PROCESSES:
        segmenter = _Segmenter(staged, vocabularies, max_length)
        return map(segmenter.segment, chunks)
    return _in_processes(staged, chunks, vocabularies, max_length, workers)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Segmenter:
    def __init__(self, staged: Path, vocabularies: Path, max_length: int | None) -> None:
        self._staged, self._most = staged, max_length
        self._vocabularies = Vocabularies.load(vocabularies)

    def segment(self, chunk: Chunk) -> Segmented:
        _, sources, targets = read_chunk(self._staged, chunk)
        source_ids = self._vocabularies.source.encode_lines(sources)
        target_ids = self._vocabularies.target.encode_lines(targets)
        kept = np.ones(chunk.pairs, dtype=np.bool_)
        if self._most is not None:
            longer = map(max, map(len, source_ids), map(len, target_ids))
            kept = np.fromiter(longer, np.int64, chunk.pairs) <= self._most
        places = np.flatnonzero(kept).tolist()
        return Segmented(
            chunk,
            kept,
            Block.of([source_ids[place] for place in places], [sources[place] for place in places]),
            Block.of([target_ids[place] for place in places], [targets[place] for place in places]),
        )


# Each helping process makes its segmenter once, before its first chunk.
_own: list[_Segmenter] = []


def _start(staged: Path, vocabularies: Path, max_length: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process stops the others
    _own.append(_Segmenter(staged, vocabularies, max_length))


def _segment(chunk: Chunk) -> Segmented:
    return _own[0].segment(chunk)


def _in_processes(
    staged: Path, chunks: Sequence[Chunk], vocabularies: Path, max_length: int | None, workers: int
) -> Iterator[Segmented]:
    waiting: deque[Future[Segmented]] = deque()
    # Not fork: the caller may have threads, and a forked copy of their locks would never open.
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _start, (staged, vocabularies, max_length)
    )
    try:
        for chunk in chunks:
            waiting.append(pool.submit(_segment, chunk))
            if len(waiting) >= workers * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise ResourceError(
            "a process that segments the text died", "it may have run out of memory: run the command again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
