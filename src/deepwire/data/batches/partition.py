"""Dealing the batches of an update to processes, so that all have about the same to do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

_TOLERANCE = 16
"""A share may begin this part of a share early or late where that spares cutting a batch."""
ROWS = 8
"""Rows come in multiples of this: see `whole_rows`."""


def whole_rows(rows: int) -> int:
    """So many rows or a few less: a multiple of 8 above 8.

    Matrix products are made ready for each shape that they meet, which takes about as long as a small one
    itself, and keeps memory (oneDNN's cache of 1,024 primitives). With any number of rows half of the shapes
    of a run would be met once or twice only; on GPUs, products in 16 bits want multiples of 8 too.
    """
    return rows if rows < ROWS else rows - rows % ROWS


class Piece(NamedTuple):
    """Rows `start` to `stop` of a batch."""

    batch: int
    start: int
    stop: int


def partition_batches(batches: Sequence[tuple[int, int]], processes: int) -> list[list[Piece]]:
    """Give each process a stretch of the batches, in their order, of about equal padded size.

    The rows of all batches are thought of in a line, which is cut into as many stretches as there are
    processes. A cut near the end of a batch is made there; any other cuts a batch in two. So a few large
    batches keep many processes busy, and a process has at most two more passes than its share has batches.
    With fewer rows than processes some get nothing.

    Args:
        batches: Rows and padded length of each.
        processes: How many there are; with one, it gets all batches, whole.
    """
    ends = list(accumulate((rows * width for rows, width in batches), initial=0))
    cuts = [(0, 0)]
    for number in range(1, processes):
        cuts.append(_cut(batches, ends, number, processes))
    cuts.append((len(batches), 0))
    return [_stretch(batches, *first, *last) for first, last in pairwise(cuts)]


def _cut(
    batches: Sequence[tuple[int, int]], ends: Sequence[int], number: int, processes: int
) -> tuple[int, int]:
    """Batch and row where share `number` begins; `ends` are the bounds of the batches, from 0."""
    # In units of a `processes`-th of a token, so that all numbers are whole.
    wanted, tolerance = ends[-1] * number, ends[-1] // _TOLERANCE
    batch = next((index for index, end in enumerate(ends[1:]) if end * processes > wanted), len(batches))
    if batch == len(batches):
        return batch, 0
    before, behind = wanted - ends[batch] * processes, ends[batch + 1] * processes - wanted
    if min(before, behind) <= tolerance:
        return (batch, 0) if before <= behind else (batch + 1, 0)
    rows, width = batches[batch]
    row = round(before / (width * processes))
    if rows >= ROWS * ROWS:  # with fewer, shares would be too unequal
        row = ROWS * round(row / ROWS)
    return (batch, row) if row < rows else (batch + 1, 0)


def _stretch(
    batches: Sequence[tuple[int, int]], batch: int, row: int, last: int, last_row: int
) -> list[Piece]:
    """The pieces from a row of a batch up to a row of another."""
    pieces = []
    while (batch, row) < (last, last_row):
        stop = last_row if batch == last else batches[batch][0]
        pieces.append(Piece(batch, row, stop))
        batch, row = batch + 1, 0
    return pieces
