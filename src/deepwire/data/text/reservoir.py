"""A random sample of a stream of pairs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from deepwire.data.text.pairs import Pair


class Reservoir:
    """A uniform random sample of a stream, a function of the seed and the stream alone.

    Algorithm L of Li (1994), "Reservoir-sampling algorithms of time complexity O(n(1 + log(N/n)))".
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._random = size, random.Random(seed)
        self.pairs: list[Pair] = []
        self._weight, self._next, self._count = 1.0, 0, 0

    def extend(self, pairs: Sequence[Pair]) -> None:
        """Show the next pairs of the stream; only those that are taken are looked at."""
        while self._next < self._count + len(pairs):
            pair = pairs[self._next - self._count]
            if len(self.pairs) < self._size:
                self.pairs.append(pair)
            else:
                self.pairs[self._random.randrange(self._size)] = pair
            self._next += 1 if len(self.pairs) < self._size else self._skip()
        self._count += len(pairs)

    def _skip(self) -> int:
        self._weight *= math.exp(math.log(1.0 - self._random.random()) / self._size)
        # The weight reaches 1 only by rounding, where every pair would be taken.
        unseen = math.log1p(-min(self._weight, 1 - 1e-16))
        return int(math.log(1.0 - self._random.random()) / unseen) + 1

    def shuffled(self) -> list[Pair]:
        """The sample in random order, so that its first k pairs are a sample too."""
        return random.Random(len(self.pairs)).sample(self.pairs, len(self.pairs))
