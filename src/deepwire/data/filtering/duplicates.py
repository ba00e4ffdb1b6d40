"""A set of 64-bit digests that costs about as little memory as the digests themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

_MAX_LOAD = 0.6
_SLACK = 1024
_MOVED = 1 << 16
"""Places of the old table that are moved at once when it grows."""


class DigestSet:
    """Remembers texts by 64-bit digests: 13 to 27 bytes for each, 40 while it grows.

    Two different texts are taken for equal with a chance of n / 2^64 each: among a hundred million pairs, one
    pair is lost with a chance of 0.03 %. The digests do not depend on the process, so results repeat.
    """

    def __init__(self, bits: int = 16) -> None:
        self._bits, self._count = bits, 0
        self._table: Digests = np.zeros((1 << bits) + _SLACK, dtype=np.uint64)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return self._table.nbytes

    def contains(self, digests: Digests) -> NDArray[np.bool_]:
        """`[digests]`: whether each was added before."""
        known: NDArray[np.bool_] = self._table[self._places(digests)] == digests
        return known

    def add(self, digests: Digests) -> NDArray[np.bool_]:
        """Remember digests; returns which of them are new, of equal ones the first only."""
        distinct, firsts = np.unique(digests, return_index=True)
        absent = ~self.contains(distinct)
        new = np.zeros(len(digests), np.bool_)
        new[firsts[absent]] = True
        self._insert(distinct[absent])
        return new

    def _places(self, digests: Digests) -> NDArray[np.int64]:
        """Where each digest is, or the free place where it would be."""
        table, places = self._table, (digests >> np.uint64(64 - self._bits)).astype(np.int64)
        searching = np.arange(len(digests))
        while searching.size:
            stored = table[places[searching]]
            searching = searching[(stored != 0) & (stored != digests[searching])]
            places[searching] += 1
        return places

    def _insert(self, digests: Digests) -> None:
        """Digests that are not there, all different."""
        self._count += len(digests)
        bits = self._bits
        while self._count > _MAX_LOAD * (1 << bits):
            bits += 1
        if bits > self._bits:
            self._rebuild(bits)
        places = self._places(digests)
        while digests.size:
            if int(places.max()) >= len(self._table) - 2:
                self._rebuild(self._bits + 1)
                places = self._places(digests)
            free = self._table[places] == 0
            self._table[places[free]] = digests[free]  # of several with one place the last gets it
            left = self._table[places] != digests
            digests, places = digests[left], places[left] + 1

    def _rebuild(self, bits: int) -> None:
        """Move every digest to a table of 2^bits places (linear probing, no wrap-around).

        In the order of the digests, place i is the first free one at or after slot i: a running maximum. The
        table is moved in pieces that end at free places, so that what is sorted is small: no digest behind a
        free place belongs before it.
        """
        old, table = self._table, np.zeros((1 << bits) + _SLACK, dtype=np.uint64)
        start, free = 0, 0
        while start < len(old):
            stop = min(start + _MOVED, len(old))
            while stop < len(old) and old[stop]:
                stop += 1
            digests = old[start:stop]
            digests = np.sort(digests[digests != 0])
            order = np.arange(len(digests))
            slots = (digests >> np.uint64(64 - bits)).astype(np.int64)
            places = np.maximum.accumulate(np.maximum(slots, free + order) - order) + order
            table[places] = digests
            free = int(places[-1]) + 1 if len(places) else free
            start = stop
        self._table, self._bits = table, bits


def digests_of(texts: Iterable[bytes]) -> Digests:
    """`[texts]`: 64 bits of BLAKE2b of each, never 0, which marks a free place."""
    joined = b"".join([hashlib.blake2b(text, digest_size=8).digest() for text in texts])
    digests: Digests = np.maximum(np.frombuffer(joined, "<u8"), np.uint64(1))
    return digests
