"""The merges that subword-nmt learned (its file of codes), and cutting one word with them."""

from __future__ import annotations

import random
from pathlib import Path

from deepwire.data.subwords.sampling import NEVER, DropoutMerges
from deepwire.data.text.files import display, read_lines
from deepwire.errors import DataError

END = "</w>"
"""How codes mark the end of a word."""
_LATEST = (0, 2)
_EARLIEST = (0, 1)


class Merges:
    """BPE merges in the order of learning (Sennrich et al. 2016, "Neural machine translation of rare words").

    Args:
        lines: The lines of a file of codes; the first may be `#version: 0.2` (without it: 0.1).
        where: What errors call the file.

    Raises:
        DataError: a line is not two symbols, or the version is unknown.
    """

    def __init__(self, lines: list[str], where: str) -> None:
        self.lines = lines
        self._word_end_is_own_symbol = _version(lines, where) == _EARLIEST
        self._ranks: dict[tuple[str, str], int] = {}
        for number, line in enumerate(lines, 1):
            if number == 1 and line.startswith("#version:"):
                continue
            parts = line.strip("\r ").split(" ")
            if len(parts) != 2:
                raise DataError(
                    f"{where}:{number}: not two symbols with a space between them",
                    "codes are what `subword-nmt learn-bpe` writes",
                )
            self._ranks.setdefault((parts[0], parts[1]), len(self._ranks))
        if not self._ranks:
            raise DataError(f"{where}: holds no merges", "codes are what `subword-nmt learn-bpe` writes")
        self._parts = {left + right: (left, right) for left, right in reversed(self._ranks)}
        self._random_merges = DropoutMerges(self._split, self._rank)

    @classmethod
    def read(cls, path: Path) -> Merges:
        """Read a file of codes.

        Raises:
            DataError: it is missing, is not UTF-8, or is no such file.
        """
        lines = [line if isinstance(line, str) else line.text for line in read_lines(path)]
        while lines and not lines[-1]:
            lines.pop()
        return cls(lines, display(path))

    def cut(self, word: str, dropout: float = 0.0, generator: random.Random | None = None) -> list[str]:
        """The pieces of a word; `"".join` gives the word back.

        Args:
            word: Not empty, no space in it.
            dropout: Probability to pass over a possible merge (BPE-dropout).
            generator: Draws what is passed over; None is no dropout.
        """
        if len(word) == 1:
            return [word]
        if generator is not None:
            return self._without_end(self._random_merges.cut(word, dropout, generator))
        symbols = self._split(word)
        while len(symbols) > 1:
            ranks = list(map(self._rank, symbols, symbols[1:]))
            best = min(ranks)
            if best == NEVER:
                break
            symbols = _merged(symbols, ranks, best)
        return self._without_end(symbols)

    def _split(self, word: str) -> list[str]:
        return [*word, END] if self._word_end_is_own_symbol else [*word[:-1], word[-1] + END]

    def _rank(self, left: str, right: str) -> int:
        return self._ranks.get((left, right), NEVER)

    def _without_end(self, symbols: list[str]) -> list[str]:
        if symbols[-1] == END:
            return symbols[:-1]
        symbols[-1] = symbols[-1].removesuffix(END)
        return symbols

    def undo(self, piece: str, final: bool) -> tuple[str, str] | None:
        """The two parts that were merged to a piece (`final`: the last of its word), or None."""
        parts = self._parts.get(piece + END if final else piece)
        if parts is None or not final:
            return parts
        left, right = parts
        # Where the end is its own symbol, the last merge may have been that of the whole piece with the end.
        return (left, right.removesuffix(END)) if right != END else self._parts.get(left)


def _merged(symbols: list[str], ranks: list[int], rank: int) -> list[str]:
    """Merge every pair of that rank, from the left; overlapping pairs (x x x) once."""
    result, position = [], 0
    while position < len(symbols):
        if position < len(ranks) and ranks[position] == rank:
            result.append(symbols[position] + symbols[position + 1])
            position += 2
        else:
            result.append(symbols[position])
            position += 1
    return result


def _version(lines: list[str], where: str) -> tuple[int, ...]:
    if not lines or not lines[0].startswith("#version:"):
        return _EARLIEST
    text = lines[0].removeprefix("#version:").strip()
    try:
        version = tuple(int(part) for part in text.split("."))[:2]
    except ValueError:
        version = ()
    if version not in (_EARLIEST, _LATEST):
        raise DataError(f"{where}:1: unknown version of codes: {text}", "versions 0.1 and 0.2 are known")
    return version
