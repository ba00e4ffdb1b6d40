"""The text that a vocabulary of many languages is learned from: small languages get more than their share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from deepwire.data.batches.mixture import tempered
from deepwire.data.batches.order import Permutation, mix
from deepwire.data.prepare.temporary_pairs import Chunk, read_chunk

_SEED = 20_190


def balanced_lines(
    path: Path,
    chunks: Sequence[Chunk],
    languages: Sequence[tuple[int, int]],
    *,
    temperature: float,
    most: int,
) -> Iterator[str]:
    """Lines of temporary pairs, of each language its tempered share; constant memory, the same every time.

    A language whose share is above what it has gets its lines several times; of one with more lines than its
    share, a random sample is taken.

    Args:
        path: The file of temporary pairs.
        chunks: All of its chunks.
        languages: Of each corpus the source and the target language.
        temperature: 1 takes as many lines of each language as the pairs have.
        most: How many lines at most, over all languages.
    """
    lines = _line_counts(chunks, languages)
    budget = min(most, sum(lines))
    wanted = [
        max(1, round(share * budget)) if count else 0
        for share, count in zip(tempered(lines, temperature), lines, strict=True)
    ]
    orders = [Permutation(count, mix(_SEED, language)) for language, count in enumerate(lines)]
    done = [0] * len(lines)
    for chunk in chunks:
        pairs = read_chunk(path, chunk)
        for language, texts in zip(languages[chunk.corpus], (pairs.source, pairs.target), strict=True):
            places = np.arange(done[language], done[language] + chunk.pairs)
            done[language] += chunk.pairs
            times, rest = divmod(wanted[language], lines[language])
            copies = times + (orders[language][places] < rest)
            lines_here = texts.lines()
            for place in np.repeat(np.arange(chunk.pairs), copies).tolist():
                yield lines_here[place].decode()


def _line_counts(chunks: Sequence[Chunk], languages: Sequence[tuple[int, int]]) -> list[int]:
    counts = [0] * (1 + max(language for pair in languages for language in pair))
    for chunk in chunks:
        for language in languages[chunk.corpus]:
            counts[language] += chunk.pairs
    return counts
