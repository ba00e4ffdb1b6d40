"""What a corpus holds: how many pairs are kept, which are dropped and why, and what looks wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from deepwire.data.filtering.filters import NAMES, REASONS
from deepwire.data.text.files import ReadNotes
from deepwire.data.text.pairs import Pair
from deepwire.data.text.scripts import script_shares, side_warnings

EXAMPLES = 5
"""Line numbers shown for each reason."""

_RESERVOIR = 1000
_LONGEST_BIN = 4096
_LARGE_DROP = 0.2
_SAME_SIDES = 0.1
_CORRELATION, _CORRELATION_PAIRS = 0.2, 200


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


@dataclass
class _Corpus:
    name: str
    pairs: int = 0
    kept: int = 0


@dataclass
class _Dropped:
    count: int = 0
    examples: list[tuple[int, int]] = field(default_factory=list)


class CheckReport:
    """Counts pairs as they are read and filtered; constant memory.

    Args:
        corpora: What to call each corpus, in the order of `Pair.corpus`.
        labels: The source and the target language.
        samples: How many random kept pairs to show.
        seed: Chooses the samples.
    """

    def __init__(
        self, corpora: Sequence[str], labels: tuple[str, str], *, samples: int = 5, seed: int = 1
    ) -> None:
        self.corpora = [_Corpus(name) for name in corpora]
        self.labels = labels
        self.notes = ReadNotes()
        self.dropped: dict[str, _Dropped] = {}
        self.also_in_training = 0
        self._samples = samples
        self._reservoir = Reservoir(max(samples, _RESERVOIR), seed)
        self._lengths = np.zeros((2, _LONGEST_BIN + 1), np.int64)
        self._characters = [0, 0]

    def drop(self, corpus: int, numbers: NDArray[np.int64], reasons: NDArray[np.uint8]) -> None:
        """Count dropped lines: their numbers, and why, as places in `filters.NAMES`."""
        self.corpora[corpus].pairs += len(numbers)
        found, firsts, counts = np.unique(reasons, return_index=True, return_counts=True)
        for place in np.argsort(firsts).tolist():
            dropped = self.dropped.setdefault(NAMES[found[place]], _Dropped())
            dropped.count += int(counts[place])
            room = EXAMPLES - len(dropped.examples)
            if room:
                lines = numbers[reasons == found[place]][:room].tolist()
                dropped.examples += [(corpus, line) for line in lines]

    def keep(self, corpus: int, lengths: NDArray[np.int32], pairs: Sequence[Pair]) -> None:
        """Count kept pairs; `lengths` are `[2, pairs]` characters of the sides."""
        self.corpora[corpus].pairs += len(pairs)
        self.corpora[corpus].kept += len(pairs)
        for side, characters in enumerate(lengths):
            self._characters[side] += int(characters.sum())
            self._lengths[side] += np.bincount(
                np.minimum(characters, _LONGEST_BIN), minlength=_LONGEST_BIN + 1
            )
        self._reservoir.extend(pairs)

    @property
    def pairs(self) -> int:
        """Pairs read."""
        return sum(corpus.pairs for corpus in self.corpora)

    @property
    def kept(self) -> int:
        """Pairs kept."""
        return sum(corpus.kept for corpus in self.corpora)

    def samples(self) -> list[Pair]:
        """A few random kept pairs, the same for the same seed and text."""
        return self._reservoir.shuffled()[: self._samples]

    def warnings(self) -> list[str]:
        """What a person should look at before training, one sentence each."""
        found = self._note_warnings()
        share = 1 - self.kept / max(self.pairs, 1)
        if share > _LARGE_DROP:
            reason = max(self.dropped, key=lambda name: self.dropped[name].count)
            found.append(f"{share:.0%} of the pairs are dropped, most for: {REASONS.get(reason, reason)}")
        sample = self._reservoir.pairs
        same = sum(pair.source == pair.target for pair in sample) / max(len(sample), 1)
        if same > _SAME_SIDES:
            found.append(
                f"both sides are the same in {same:.0%} of the pairs (filters.drop_copies drops these)"
            )
        found += side_warnings(self.labels, self.scripts())
        correlation = _length_correlation(sample)
        if correlation is not None and correlation < _CORRELATION:
            found.append(
                f"the lengths of the two sides hardly go together (correlation {correlation:.2f}): "
                "the lines may not be translations of each other"
            )
        if self.also_in_training:
            found.append(f"{self.also_in_training} of these pairs are also in the training text")
        return found

    def _note_warnings(self) -> list[str]:
        notes = self.notes
        texts = [
            (notes.byte_order_marks, "files began with a byte order mark, which was removed"),
            (notes.carriage_returns, "lines ended in \\r\\n: the \\r was removed"),
            (notes.replaced_lines, "lines were not UTF-8: the bytes were replaced by U+FFFD"),
            (notes.joined_lines, "JSON texts held line breaks, which became spaces"),
        ]
        return [f"{count} {text}" for count, text in texts if count]

    def length(self, side: int) -> tuple[int, dict[str, float]]:
        """Characters of a side (0 is the source) in total; mean, median, p95, p99 and maximum of a line."""
        return self._characters[side], _length_statistics(self._lengths[side], self._characters[side])

    def scripts(self) -> tuple[dict[str, float], dict[str, float]]:
        """Share of the letters in each script, of either side of the random sample."""
        pairs = self._reservoir.pairs
        return script_shares(pair.source for pair in pairs), script_shares(pair.target for pair in pairs)

    def to_dict(self) -> dict[str, object]:
        """The whole report as values that JSON can hold."""
        scripts = self.scripts()
        sides = {
            side: {
                "language": self.labels[index],
                "characters": self.length(index)[0],
                "length": self.length(index)[1],
                "scripts": {script: round(share, 4) for script, share in scripts[index].items()},
            }
            for index, side in enumerate(("source", "target"))
        }
        return {
            "pairs": self.pairs,
            "kept": self.kept,
            "dropped": {
                reason: {
                    "count": dropped.count,
                    "examples": [
                        {"corpus": self.corpora[corpus].name, "line": line}
                        for corpus, line in dropped.examples
                    ],
                }
                for reason, dropped in sorted(self.dropped.items(), key=lambda item: -item[1].count)
            },
            "corpora": [asdict(corpus) for corpus in self.corpora],
            **sides,
            "repaired": asdict(self.notes),
            "also_in_training": self.also_in_training,
            "warnings": self.warnings(),
            "samples": [
                {
                    "corpus": self.corpora[pair.corpus].name,
                    "line": pair.line,
                    "source": pair.source,
                    "target": pair.target,
                }
                for pair in self.samples()
            ],
        }


def _length_correlation(pairs: Sequence[Pair]) -> float | None:
    """Correlation of the log lengths of the two sides; None where there are too few pairs or no spread."""
    if len(pairs) < _CORRELATION_PAIRS:
        return None
    lengths = np.log([[len(pair.source), len(pair.target)] for pair in pairs])
    deviations: NDArray[np.float64] = lengths - lengths.mean(axis=0)
    spread = np.sqrt((deviations**2).mean(axis=0))
    if spread.min() < 0.05:
        return None
    return float((deviations[:, 0] * deviations[:, 1]).mean() / spread.prod())


def _length_statistics(counts: NDArray[np.int64], characters: int) -> dict[str, float]:
    """Mean, quantiles and maximum in characters; above 4096 they say 4096."""
    total = int(counts.sum())
    if total == 0:
        return {}
    cumulated = np.cumsum(counts)
    quantiles = {
        name: int(np.searchsorted(cumulated, share * total))
        for name, share in (("median", 0.5), ("p95", 0.95), ("p99", 0.99))
    }
    return {"mean": round(characters / total, 1), **quantiles, "max": int(np.flatnonzero(counts)[-1])}
