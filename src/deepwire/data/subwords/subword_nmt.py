"""BPE with codes of subword-nmt: learn, apply, apply with dropout, undo. The text must be tokenised."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from deepwire.data.subwords.base import UNK
from deepwire.data.subwords.sampling import NEVER, DropoutMerges
from deepwire.data.subwords.words import FIRST, Dictionary, DictionaryVocabulary, PieceCounter, as_json
from deepwire.data.text.files import display, read_lines
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary_config import SubwordNmtConfig
from deepwire.errors import DataError

END = "</w>"
"""How codes mark the end of a word."""
_LATEST = (0, 2)
_EARLIEST = (0, 1)


SEPARATOR = "@@"
"""Shown after a piece that does not end its word."""
UNKNOWN = "\u2047 "
_MAX_CACHED = 1 << 18


class Segmenter:
    """Cuts words by BPE merges (Sennrich et al. 2016, "Neural machine translation of rare words").

    A piece that ends its word is written with a space behind it, as in the text: pieces are told apart
    whatever characters they hold, and `"".join` undoes the segmentation.

    Args:
        lines: Of a file of codes, in the order of learning; the first may be `#version: 0.2` (without: 0.1).
        where: The file, in errors.
        allowed: Pieces (written `x@@` and `x`) that may be used, in vocabularies of earlier versions; others
            are split until they are allowed or single characters. None allows all.

    Raises:
        DataError: a line is not two symbols, or the version is unknown.
    """

    def __init__(self, lines: list[str], where: str, allowed: Collection[str] | None = None) -> None:
        self.lines = lines
        self.allowed = None if allowed is None else frozenset(allowed)
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
    def read(cls, path: Path, allowed: Collection[str] | None = None) -> Segmenter:
        """Reads a file of codes; a DataError where it is missing, is not UTF-8, or is no such file."""
        lines = [line if isinstance(line, str) else line.text for line in read_lines(path)]
        while lines and not lines[-1]:
            lines.pop()
        return cls(lines, display(path), allowed)

    def cut(self, word: str, dropout: float = 0.0, generator: random.Random | None = None) -> list[str]:
        """The pieces of a word that is not empty.

        `dropout` is the probability to pass over a possible merge (BPE-dropout), which the generator draws.
        """
        pieces = self._merge(word, dropout, generator)
        if self.allowed is not None:
            last = len(pieces) - 1
            pieces = [part for i, piece in enumerate(pieces) for part in self._known(piece, i == last)]
        pieces[-1] += " "
        return pieces

    def _merge(self, word: str, dropout: float, generator: random.Random | None) -> list[str]:
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

    def _known(self, piece: str, final: bool) -> Iterator[str]:
        """The allowed pieces or single characters of one piece; `final`: it ends its word."""
        known = (piece if final else piece + SEPARATOR) in (self.allowed or ())
        parts = None if known else self._undo(piece, final)
        if parts is None:
            yield piece
        else:
            yield from self._known(parts[0], False)
            yield from self._known(parts[1], final)

    def _undo(self, piece: str, final: bool) -> tuple[str, str] | None:
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


class SubwordNmtVocabulary(DictionaryVocabulary):
    """Codes and the dictionary of their pieces."""

    def __init__(self, segmenter: Segmenter, dictionary: Dictionary) -> None:
        self._segmenter, self._dictionary = segmenter, dictionary
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Words, parted by spaces, to piece numbers; pieces that are not in the dictionary become UNK."""
        cache, ids = self._cache, []
        for word in text.split(" "):
            if word:
                numbers = cache.get(word)
                if numbers is None:
                    numbers = self._remember(word)
                ids += numbers
        return ids

    def _remember(self, word: str) -> list[int]:
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        numbers = [self._dictionary.id(piece) for piece in self._segmenter.cut(word)]
        self._cache[word] = numbers
        return numbers

    def sample(self, text: str, seed: int, strength: float) -> list[int]:
        """BPE-dropout (Provilkov et al. 2020, algorithm 1)."""
        if strength == 0:
            return self.encode(text)
        generator, cut = random.Random(seed), self._segmenter.cut
        pieces = (piece for word in text.split(" ") if word for piece in cut(word, strength, generator))
        return [self._dictionary.id(piece) for piece in pieces]

    def _decode_ids(self, ids: list[int]) -> str:
        texts = (UNKNOWN if number == UNK else self._dictionary.piece(number) for number in ids)
        return "".join(texts).rstrip(" ")

    def _piece(self, number: int) -> str:
        piece = self._dictionary.piece(number)
        return piece[:-1] if piece.endswith(" ") else piece + SEPARATOR  # as subword-nmt writes it

    def files(self, name: str) -> dict[str, bytes]:
        """The codes, the dictionary, and the pieces that may be used (null: all)."""
        allowed = None if self._segmenter.allowed is None else sorted(self._segmenter.allowed)
        return {
            f"{name}.codes": "".join(f"{line}\n" for line in self._segmenter.lines).encode(),
            f"{name}.pieces.json": self._dictionary.to_json(),
            f"{name}.allowed.json": as_json(allowed),
        }

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], name: str) -> SubwordNmtVocabulary:
        """The vocabulary of which `files` gave these."""
        codes = files[f"{name}.codes"].decode().removesuffix("\n").split("\n")
        segmenter = Segmenter(codes, f"{name}.codes", json.loads(files[f"{name}.allowed.json"]))
        return cls(segmenter, Dictionary.from_json(files[f"{name}.pieces.json"]))


def learn_pieces(
    config: SubwordNmtConfig, blocks: Iterable[Sequence[Pair]]
) -> tuple[SubwordNmtVocabulary, SubwordNmtVocabulary]:
    """Applies the codes to the training text: the dictionaries of both sides, most frequent pieces first.

    A DataError where a file of codes is missing or damaged, or no piece is frequent enough.
    """
    source = Segmenter.read(config.codes)
    target = source if config.target_codes is None else Segmenter.read(config.target_codes)
    counter = PieceCounter()
    counters = counter, counter if config.joint else PieceCounter()
    sides = list(zip((source, target), counters, (Counter[str](), Counter[str]()), strict=True))

    def count_pieces() -> None:
        for segmenter, pieces, words in sides:
            for word, times in words.items():
                pieces.add(segmenter.cut(word), times)
            words.clear()

    for pair in chain.from_iterable(blocks):
        for (_, _, words), text in zip(sides, (pair.source, pair.target), strict=True):
            words.update(word for word in text.split(" ") if word)
            if len(words) > _MAX_CACHED:
                count_pieces()
    count_pieces()
    dictionaries = [each.dictionary(config.min_count) for each in counters]
    if min(map(len, dictionaries)) == FIRST:
        raise DataError(f"no piece occurs {config.min_count} times", "is there text, and min_count small?")
    first, second = map(SubwordNmtVocabulary, (source, target), dictionaries)
    return first, first if config.joint else second
