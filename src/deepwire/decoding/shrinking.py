"""Which finished sentences leave the batch, and when."""

from __future__ import annotations

from collections.abc import Sequence

_SHARE = 8


def parting(ended: Sequence[bool]) -> tuple[list[int], list[int]]:
    """The places of the sentences that leave the batch now, and of those that stay, in order.

    None leave where too few have ended to pay for copying the state of the others. Some that have ended stay
    for a while, so that batches come in few sizes: products are made ready for each that they meet, which
    takes about as long as a small one itself (see `deepwire.data.batches.partition.whole_rows`).
    """
    over = [place for place, one in enumerate(ended) if one]
    most = len(ended) - _size(len(ended) - len(over))
    if most <= 0 or most * _SHARE < len(ended):
        return [], list(range(len(ended)))
    gone = set(over[:most])
    return over[:most], [place for place in range(len(ended)) if place not in gone]


def _size(sentences: int) -> int:
    """The next size of a batch, of four between a power of two and its double: 8, 10, 12, 14, 16, 20, ..."""
    step = 1 << max(0, sentences.bit_length() - 3)
    return -(-sentences // step) * step
