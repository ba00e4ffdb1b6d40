"""Which of some known languages is a line in? Naive Bayes over character n-grams, learned from text at hand.

Zero-shot translation often comes out in the wrong language (Zhang et al. 2020), which BLEU shows only
indirectly. The identifier knows no language but those it was trained on, and always chooses one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepwire.data.text.pairs import is_blank
from deepwire.errors import UsageError

ENOUGH_CHARACTERS = 1_000_000
"""Text of a language beyond this adds little; it is not read."""
_LONGEST = 4
_BITS = 16
_SMOOTHING = 0.1
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class LanguageIdentifier:
    """Tells languages apart by the logarithms of the shares of hashed n-grams, `[languages, 2^16]`."""

    languages: tuple[str, ...]
    log_probabilities: NDArray[np.float32]

    def identify(self, line: str) -> str | None:
        """The most likely language of a line; None if it has no letter."""
        if not any(character.isalpha() for character in line):
            return None
        return self.languages[int(self.log_probabilities[:, _ngrams(line)].sum(axis=1).argmax())]

    def share(self, lines: Sequence[str], language: str) -> float | None:
        """The share (0 to 1) of lines with letters that are in a language; None if there is no such line."""
        identified = [name for line in lines if (name := self.identify(line)) is not None]
        return sum(name == language for name in identified) / len(identified) if identified else None


def train_identifier(texts: Mapping[str, Iterable[str]]) -> LanguageIdentifier:
    """Learns languages, all equally likely, from lines of text, of each up to a million characters.

    Raises:
        UsageError: There are fewer than two languages, or one has no text.
    """
    if len(texts) < 2:
        raise UsageError("telling languages apart needs text in at least two of them")
    languages = tuple(sorted(texts))
    counts = np.zeros((len(languages), 1 << _BITS), np.float32)
    for row, language in zip(counts, languages, strict=True):
        text = _enough(texts[language])
        if is_blank(text):
            raise UsageError(f"there is no text to learn {language} from")
        row += np.bincount(_ngrams(text), minlength=1 << _BITS)
    counts += _SMOOTHING
    return LanguageIdentifier(languages, np.log(counts / counts.sum(axis=1, keepdims=True)))


def _enough(lines: Iterable[str]) -> str:
    taken: list[str] = []
    room = ENOUGH_CHARACTERS
    for line in lines:
        if room <= 0:
            break
        taken.append(line)
        room -= len(line)
    return " ".join(taken)


def _ngrams(line: str) -> NDArray[np.int64]:
    """Hashes below 2^16 of all n-grams of 1 to 4 characters, lower-cased, with a space at both ends."""
    code_points = np.frombuffer(f" {line.lower()} ".encode("utf-32-le", "replace"), np.uint32)
    characters = code_points.astype(np.uint64)
    ngrams = []
    hashed = np.zeros(len(characters), np.uint64)
    for length in range(1, min(_LONGEST, len(characters)) + 1):
        tail = characters[length - 1 :]
        hashed = (hashed[: len(tail)] + tail + np.uint64(length)) * _MULTIPLIER
        ngrams.append((hashed >> np.uint64(64 - _BITS)).astype(np.int64))
    return np.concatenate(ngrams)
