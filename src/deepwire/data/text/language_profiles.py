"""What the languages of a run look like, learned from its own text: frequencies of short character sequences.

A text is in the language under which its sequences of one to four characters are the most probable. Sequences
overlap, and so are no independent witnesses: the mean over the lengths counts, not the sum.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from deepwire.errors import ModelError

_LONGEST = 4
_KEPT = 12_000
"""Sequences of a language, the most frequent ones."""
MOST_CHARACTERS = 300_000
"""More text of a language than this is not looked at."""
_UNSEEN = 0.02
"""A sequence that is not kept counts so many times as often as the rarest that is."""
_FORMAT = 1
_NO_WORD = re.compile(r"[\W\d_]+")


def sequences(text: str) -> Counter[str]:
    """How often a text has each sequence of characters; one space stands for all that is no letter."""
    padded = f" {_NO_WORD.sub(' ', text.lower()).strip()} "
    if not padded.strip():
        return Counter()
    return Counter(
        padded[place : place + length]
        for length in range(1, _LONGEST + 1)
        for place in range(len(padded) - length + 1)
        if padded[place : place + length] != " "
    )


@dataclass(frozen=True)
class LanguageProfiles:
    """The frequent sequences of some languages.

    Args:
        counts: Of each language, how often its text has each of its most frequent sequences.
        totals: Of each language, how many sequences of one, two, ... characters its text has.
    """

    counts: Mapping[str, Mapping[str, int]]
    totals: Mapping[str, Sequence[int]]

    @classmethod
    def learn(cls, texts: Mapping[str, Iterable[str]]) -> Self:
        """From lines in each language."""
        counts: dict[str, dict[str, int]] = {}
        totals: dict[str, list[int]] = {}
        for label, lines in texts.items():
            frequencies, characters = Counter[str](), 0
            for line in lines:
                frequencies.update(sequences(line))
                characters += len(line)
                if characters > MOST_CHARACTERS:
                    break
            if frequencies:
                sizes = Counter[int]()
                for text, number in frequencies.items():
                    sizes[len(text)] += number
                totals[label] = [sizes[length] for length in range(1, _LONGEST + 1)]
                # Of equally frequent ones always the same are kept.
                counts[label] = dict(
                    sorted(frequencies.items(), key=lambda item: (-item[1], item[0]))[:_KEPT]
                )
        return cls(counts, totals)

    @classmethod
    def together(cls, several: Iterable[Self]) -> Self:
        """The languages of several; of a language that some share, the first profile."""
        counts: dict[str, Mapping[str, int]] = {}
        totals: dict[str, Sequence[int]] = {}
        for profiles in several:
            counts = {**profiles.counts, **counts}
            totals = {**profiles.totals, **totals}
        return cls(counts, totals)

    def to_bytes(self) -> bytes:
        """As a file; the same profiles are always the same bytes."""
        record = {
            label: {"totals": list(self.totals[label]), "counts": dict(counts)}
            for label, counts in self.counts.items()
        }
        text = json.dumps({"format": _FORMAT, "languages": record}, ensure_ascii=False, separators=(",", ":"))
        return gzip.compress(text.encode(), mtime=0)

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> Self:
        """Read what `to_bytes` gave.

        Raises:
            ModelError: It is something else; `name` says where it is from.
        """
        try:
            record = json.loads(gzip.decompress(content))
            languages = record["languages"]
            counts = {
                str(label): {str(gram): int(number) for gram, number in profile["counts"].items()}
                for label, profile in languages.items()
            }
            totals = {
                str(label): [int(size) for size in profile["totals"]] for label, profile in languages.items()
            }
            sound = record["format"] == _FORMAT and all(
                frequencies
                and len(totals[label]) == _LONGEST
                and min(frequencies.values()) > 0
                and all(0 < len(gram) <= _LONGEST for gram in frequencies)
                for label, frequencies in counts.items()
            )
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zlib.error):
            sound = False
        if not sound:
            raise ModelError(f"{name}: damaged: not profiles of languages")
        return cls(counts, totals)

    @property
    def labels(self) -> tuple[str, ...]:
        """The languages."""
        return tuple(self.counts)

    def shares(self, text: str, among: Collection[str] | None = None) -> dict[str, float]:
        """How probable each language is, most probable first, together 1; none for a text without letters.

        Args:
            text: Some text.
            among: The languages that it can be in; None = all.
        """
        labels = [label for label in self.counts if among is None or label in among]
        frequencies = sequences(text)
        if not labels or not frequencies:
            return {}
        logs = dict.fromkeys(labels, 0.0)
        for gram, number in frequencies.items():
            rows = self._table.get(gram)
            if rows is None:
                continue
            for label in labels:
                logs[label] += number * rows[label]
        best = max(logs.values())
        weights = {label: math.exp((value - best) / _LONGEST) for label, value in logs.items()}
        total = sum(weights.values())
        return dict(sorted(((k, v / total) for k, v in weights.items()), key=lambda item: -item[1]))

    @cached_property
    def _table(self) -> dict[str, dict[str, float]]:
        """The log-probability of each sequence that some language has, in every language."""
        unseen = {
            label: _UNSEEN * (min(counts.values()) if len(counts) >= _KEPT else 1)
            for label, counts in self.counts.items()
        }
        every = {gram for counts in self.counts.values() for gram in counts}
        return {
            gram: {
                label: math.log(counts.get(gram, unseen[label]) / (self.totals[label][len(gram) - 1] + 1))
                for label, counts in self.counts.items()
            }
            for gram in every
        }
