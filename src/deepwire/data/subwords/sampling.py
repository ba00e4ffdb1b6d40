"""Random segmentation, repeatable from a seed on every machine: BPE-dropout and subword regularization.

SentencePiece's own sampling differs from process to process: an interrupted run could not continue exactly.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate

NEVER = 1 << 60
"""The rank of a pair that is not merged."""
_MAX_PATHS = 1 << 15
LONGEST_KEPT = 40
"""Characters; longer words are not kept: sentences without spaces, which hardly come again."""


class DropoutMerges:
    """BPE where each possible merge is passed over with a probability, drawn anew at each step.

    Provilkov et al. 2020, "BPE-Dropout", algorithm 1. At a step only merges better than the one that is done
    need a draw, so most words take the path without dropout to its end: paths are kept, and one draw says at
    which step the first merge is passed over.

    Args:
        split: A word as symbols.
        rank: The rank of a pair of symbols, `NEVER` for none; lower ranks merge first.
    """

    def __init__(self, split: Callable[[str], list[str]], rank: Callable[[str, str], int]) -> None:
        self._split, self._rank = split, rank
        self._kept_path = lru_cache(_MAX_PATHS)(self._path)

    def cut(self, word: str, dropout: float, generator: random.Random) -> list[str]:
        """The symbols of a word, which is not empty, after random merges; a new list."""
        path = (self._kept_path if len(word) <= LONGEST_KEPT else self._path)(word)
        step = int(math.log(1.0 - generator.random()) / math.log1p(-dropout))
        if step >= len(path) - 1:
            return path[-1][0].copy()
        symbols, ranks = path[step][0].copy(), path[step][1].copy()
        draw, dropped = generator.random, True
        while (place := _best_kept(ranks, dropout, draw, dropped)) is not None:
            self._merge(symbols, ranks, place)
            dropped = False
        return symbols

    def _path(self, word: str) -> list[tuple[list[str], list[int]]]:
        """The symbols and the ranks of their pairs before each step without dropout, and at the end."""
        symbols = self._split(word)
        ranks = list(map(self._rank, symbols, symbols[1:]))
        path = [(symbols.copy(), ranks.copy())]
        while ranks and (best := min(ranks)) != NEVER:
            self._merge(symbols, ranks, ranks.index(best))
            path.append((symbols.copy(), ranks.copy()))
        return path

    def _merge(self, symbols: list[str], ranks: list[int], place: int) -> None:
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
        del ranks[place]
        if place:
            ranks[place - 1] = self._rank(symbols[place - 1], symbols[place])
        if place < len(ranks):
            ranks[place] = self._rank(symbols[place], symbols[place + 1])


def _best_kept(ranks: list[int], dropout: float, draw: Callable[[], float], dropped: bool) -> int | None:
    """Place of the best pair that is not passed over; `dropped`: the very best is, without a draw."""
    left = ranks.copy()
    while left and (best := min(left)) != NEVER:
        place = left.index(best)
        if not dropped and draw() >= dropout:
            return place
        dropped = False
        left[place] = NEVER
    return None


class Lattice:
    """All segmentations of a word into weighted pieces, ready to draw from.

    Forward filtering, backward sampling (Kudo 2018, "Subword regularization", eq. 8): a segmentation is drawn
    with a probability proportional to the product of its pieces' probabilities to the power alpha. `scores`
    are the logarithms of these, `unknown` that of a character that is no piece, and pieces have at most
    `longest` characters.
    """

    def __init__(
        self, scores: dict[str, float], unknown: float, longest: int, word: str, alpha: float
    ) -> None:
        forward = [0.0]
        self._arcs: list[tuple[list[float], list[int], list[str]]] = []
        for end in range(1, len(word) + 1):
            starts, pieces, weights = [], [], []
            for start in range(max(0, end - longest), end):
                piece = word[start:end]
                score = scores.get(piece)
                if score is None and start == end - 1:
                    score = unknown
                if score is not None:
                    starts.append(start)
                    pieces.append(piece)
                    weights.append(forward[start] + alpha * score)
            top = max(weights)
            shares = list(accumulate(math.exp(weight - top) for weight in weights))
            forward.append(top + math.log(shares[-1]))
            self._arcs.append((shares, starts, pieces))

    def draw(self, generator: random.Random) -> list[str]:
        """One segmentation."""
        position, drawn = len(self._arcs), []
        while position:
            shares, starts, pieces = self._arcs[position - 1]
            # A product of floats can round up to the whole sum: keep the last arc in that case.
            choice = min(bisect_right(shares, generator.random() * shares[-1]), len(shares) - 1)
            drawn.append(pieces[choice])
            position = starts[choice]
        drawn.reverse()
        return drawn
