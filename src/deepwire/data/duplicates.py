"""A set of 64-bit digests that costs about as little memory as the digests themselves."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_MAX_LOAD = 0.6
_SLACK = 1024


class DigestSet:
    """Remembers texts by 64-bit digests: 13 to 27 bytes for each, up to 60 while it grows.

    Two different texts are taken for equal with a chance of n / 2^64 each: among a hundred million pairs, one
    pair is lost with a chance of 0.03 %. The digests do not depend on the process, so results repeat.
    """

    def __init__(self, bits: int = 16) -> None:
        self._bits, self._count = bits, 0
        self._table = np.zeros((1 << bits) + _SLACK, dtype=np.uint64)
        self._view = self._table.data
        self._rebuild(bits)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return self._table.nbytes

    def __contains__(self, text: str) -> bool:
        digest = _digest(text)
        return self._view[self._slot(digest)] == digest

    def add(self, text: str) -> bool:
        """Remember `text`; False when it was there already."""
        digest = _digest(text)
        view = self._view
        slot = digest >> self._shift
        while stored := view[slot]:
            if stored == digest:
                return False
            slot += 1
        view[slot] = digest
        self._count += 1
        if self._count > self._limit or slot >= self._last:
            self._rebuild(self._bits + 1)
        return True

    def _slot(self, digest: int) -> int:
        """Where `digest` is, or the free place where it would be."""
        slot = digest >> self._shift
        while (stored := self._view[slot]) and stored != digest:
            slot += 1
        return slot

    def _rebuild(self, bits: int) -> None:
        """Move every digest to a table of 2^bits places (linear probing, no wrap-around).

        In the order of the digests, place i is the first free one at or after slot i: a running maximum.
        """
        digests: NDArray[np.uint64] = self._table[self._table != 0]
        del self._table, self._view  # before the larger one takes memory
        digests.sort()
        shift = 64 - bits
        order = np.arange(len(digests), dtype=np.int64)
        places = (digests >> np.uint64(shift)).view(np.int64)
        places -= order
        np.maximum.accumulate(places, out=places)
        places += order
        del order
        table = np.zeros((1 << bits) + _SLACK, dtype=np.uint64)
        table[places] = digests
        self._table, self._view, self._bits, self._shift = table, table.data, bits, shift
        self._limit, self._last = int(_MAX_LOAD * (1 << bits)), len(table) - 2


def _digest(text: str) -> int:
    """64 bits of BLAKE2b, never 0, which marks a free place."""
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1
