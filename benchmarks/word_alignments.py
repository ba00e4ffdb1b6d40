"""Alignments for `deepwire analyze alignment` and for guided alignment, where nobody made any.

    python benchmarks/word_alignments.py SOURCE TARGET --output FILE [--train SOURCE TARGET] [--sure-only]

IBM model 1 with a preference for the diagonal (Dyer et al. 2013, "A Simple, Fast, and Effective
Reparameterization of IBM Model 2", with a fixed tension) is learned in both directions. Each word is linked
to its best word on the other side. Links of both directions are sure (`i-j`), those of one possible (`i?j`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deepwire.data.text.files import read_lines

TENSION, NOTHING, ROUNDS = 4.0, 0.08, 6
"""Preference for the diagonal, prior of no link, and rounds of EM."""
Lines = Sequence[Sequence[int]]


def numbered(lines: Sequence[str], known: dict[str, int]) -> list[list[int]]:
    """The words of each line as numbers; capitals and punctuation at their ends make no difference."""
    words = [[word.casefold().strip(".,;:!?\"'()") or word for word in line.split()] for line in lines]
    return [[known.setdefault(word, len(known) + 1) for word in line] for line in words]


class Direction:
    """The model of one direction: target words come from source words, or from none (number 0).

    Args:
        pairs: Text to learn from and text to align, as numbers.
    """

    def __init__(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        width = max(word for _, target in pairs for word in target) + 1
        keys, priors, slots, sizes = [], [], [], []
        slot = 0
        for source, target in pairs:
            n, m = len(source), len(target)
            places = np.abs(np.arange(1, n + 1)[:, None] / max(1, n) - np.arange(1, m + 1) / max(1, m))
            prior = np.exp(-TENSION * places)
            prior *= (1 - NOTHING) / np.maximum(prior.sum(0), 1e-30)
            prior = np.concatenate([np.full((1, m), NOTHING), prior])
            words = np.array([0, *source], np.int64)[:, None] * width + np.array(target, np.int64)
            keys.append(words.ravel())
            priors.append(prior.ravel().astype(np.float32))
            slots.append(np.tile(np.arange(slot, slot + m), n + 1))
            slot += m
            sizes.append((n, m))
        unique, self._places = np.unique(np.concatenate(keys), return_inverse=True)
        self._owners = unique // width
        self._prior, self._slots, self._sizes = np.concatenate(priors), np.concatenate(slots), sizes
        self._translation = np.ones(len(unique))

    def _shares(self) -> NDArray[np.float64]:
        weights = self._prior * self._translation[self._places]
        return weights / np.bincount(self._slots, weights)[self._slots]

    def learn(self) -> None:
        """Rounds of EM."""
        for _ in range(ROUNDS):
            counts = np.bincount(self._places, self._shares(), len(self._translation)) + 1e-3
            self._translation = counts / np.bincount(self._owners, counts)[self._owners]

    def links(self, first: int) -> list[set[tuple[int, int]]]:
        """Source and target word of each target word that comes from one, of the pairs from `first` on."""
        shares, found, at = self._shares(), list[set[tuple[int, int]]](), 0
        for number, (n, m) in enumerate(self._sizes):
            size = (n + 1) * m
            if number >= first:
                best = shares[at : at + size].reshape(n + 1, m).argmax(0) if m else np.zeros(0, np.int64)
                found.append({(int(word) - 1, place) for place, word in enumerate(best) if word})
            at += size
        return found


def aligned(
    sides: tuple[Sequence[str], Sequence[str]], more: tuple[Sequence[str], Sequence[str]]
) -> list[str]:
    """A line of links for each pair; `more` is text to learn from besides."""
    known: tuple[dict[str, int], dict[str, int]] = {}, {}
    source, target = (
        numbered([*learned, *own], names) for learned, own, names in zip(more, sides, known, strict=True)
    )
    found = []
    for one, other in ((source, target), (target, source)):
        direction = Direction(list(zip(one, other, strict=True)))
        direction.learn()
        found.append(direction.links(len(more[0])))
    lines = []
    for forth, back in zip(*found, strict=True):
        back = {(i, j) for j, i in back}
        links = sorted(forth | back)
        lines.append(" ".join(f"{i}{'-' if (i, j) in forth & back else '?'}{j}" for i, j in links))
    return lines


def main() -> None:
    """Read the options, write the file."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("text", nargs=2, type=Path, metavar=("SOURCE", "TARGET"))
    options.add_argument("--train", nargs=2, type=Path, metavar=("SOURCE", "TARGET"))
    options.add_argument("--sure-only", action="store_true", help="as data.train takes alignments")
    options.add_argument("--output", type=Path, required=True)
    given = options.parse_args()
    source, target = ([str(line) for line in read_lines(path)] for path in given.text)
    more = [[str(line) for line in read_lines(path)] for path in given.train] if given.train else [[], []]
    lines = aligned((source, target), (more[0], more[1]))
    if given.sure_only:
        lines = [" ".join(link for link in line.split() if "-" in link) for line in lines]
    given.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
