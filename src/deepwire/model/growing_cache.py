"""A key/value cache that grows by one position a step, without writing in place: for graphs of one step.

Each row has a cache of its own, `[rows, H, t, h]` with t positions read so far. A step is then a function of
tensors alone, whose sizes may all change from call to call, and whoever runs it can reorder the rows of a
beam as those of any other state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from deepwire.model.kv_cache import CacheIndex, KeyValueCache


@dataclass(frozen=True)
class GrowingCacheIndex(CacheIndex):
    """The position of a decoder whose caches grow; every row is a group.

    Attributes:
        number: The position as a tensor, `[]` int64, and `used` the positions that caches hold before it.
    """

    number: Tensor | None = None

    @property
    def current_position(self) -> int | Tensor:
        """The position, to calculate with."""
        return self.position if self.number is None else self.number

    @property
    def bias(self) -> Tensor:
        """Nothing is hidden: a row's cache holds its own past alone, `[1, 1, 1, 1]`."""
        return torch.zeros(1, 1, 1, 1)

    @property
    def distance(self) -> Tensor:
        """Position of each cached position minus that of the row, `[1, 1, 1, t + 1]`."""
        return (torch.arange(self.used + 1) - self.used)[None, None, None]

    def store(self, cache: KeyValueCache, keys: Tensor, values: Tensor) -> KeyValueCache:
        """The cache with one position more."""
        return KeyValueCache(torch.cat((cache.keys, keys), 2), torch.cat((cache.values, values), 2))

    def begun(self) -> CacheIndex:
        """As it is: there are no slots to fill."""
        return self

    def advanced(self) -> CacheIndex:
        """Before the next position."""
        number = None if self.number is None else self.number + 1
        return replace(self, position=self.position + 1, used=self.used + 1, number=number)
