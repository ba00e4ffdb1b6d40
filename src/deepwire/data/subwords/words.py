"""Text that is segmented already: every word between spaces is an entry of a dictionary, a JSON file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from deepwire.data.subwords.base import SPECIAL_PIECES, UNK, Vocabulary
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.errors import DataError

FIRST = len(SPECIAL_PIECES)
"""The number of the first ordinary piece."""
MAX_COUNTED = 8_000_000
"""With more distinct pieces than this the rarest are forgotten, so that counting keeps its memory."""


class Dictionary:
    """Ordinary pieces with ids from 4, in the order given."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = list(pieces)
        self._ids = {piece: i for i, piece in enumerate(self._pieces, FIRST)}

    def __len__(self) -> int:
        return FIRST + len(self._pieces)

    def id(self, piece: str) -> int:
        """The id of a piece; UNK if it has none."""
        return self._ids.get(piece, UNK)

    def piece(self, piece_id: int) -> str:
        """The piece of an ordinary id."""
        return self._pieces[piece_id - FIRST]

    @classmethod
    def from_json(cls, content: bytes) -> Dictionary:
        """The pieces that `to_json` gave."""
        return cls(json.loads(content))

    def to_json(self) -> bytes:
        """The pieces as a JSON list, one a line."""
        return as_json(self._pieces)


def as_json(value: object) -> bytes:
    """A value as the bytes of a JSON file that people can read."""
    return (json.dumps(value, ensure_ascii=False, indent=0) + "\n").encode()


class PieceCounter:
    """How often each piece was seen."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._floor = 0

    def add(self, pieces: Iterable[str], times: int = 1) -> None:
        """Count pieces, each `times` times."""
        if times == 1:
            self._counts.update(pieces)
        else:
            for piece in pieces:
                self._counts[piece] += times
        while len(self._counts) > MAX_COUNTED:
            self._floor += 1
            self._counts = Counter({p: count for p, count in self._counts.items() if count > self._floor})

    def dictionary(self, min_count: int = 1, max_size: int | None = None) -> Dictionary:
        """The pieces from the most frequent to the rarest, equal ones in alphabetical order."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        kept = [piece for piece, count in ranked if count >= min_count]
        return Dictionary(kept if max_size is None else kept[: max_size - FIRST])


UNKNOWN = "\u2047"
_JOINT = re.compile("@@(?: |$)")


class DictionaryVocabulary(Vocabulary):
    """A vocabulary with the entries of a dictionary."""

    _dictionary: Dictionary

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self._dictionary)

    def _piece(self, number: int) -> str:
        return self._dictionary.piece(number)


class WordVocabulary(DictionaryVocabulary):
    """A dictionary of words.

    Args:
        dictionary: The words.
        joiner: `@@` when a word that ends so goes with the next one, as BPE writes it; `none` otherwise.
    """

    def __init__(self, dictionary: Dictionary, joiner: str) -> None:
        self._dictionary, self._joiner = dictionary, joiner

    def encode(self, text: str) -> list[int]:
        """Words to ids; words that are not in the dictionary become UNK."""
        return [self._dictionary.id(word) for word in text.split(" ") if word]

    def _decode_ids(self, ids: list[int]) -> str:
        text = " ".join(UNKNOWN if i == UNK else self._dictionary.piece(i) for i in ids)
        return _JOINT.sub("", text) if self._joiner == "@@" else text

    def files(self, name: str) -> dict[str, bytes]:
        """The words and how they are joined."""
        settings = as_json({"joiner": self._joiner})
        return {f"{name}.pieces.json": self._dictionary.to_json(), f"{name}.settings.json": settings}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], name: str) -> WordVocabulary:
        """The vocabulary of which `files` gave these."""
        settings = json.loads(files[f"{name}.settings.json"])
        return cls(Dictionary.from_json(files[f"{name}.pieces.json"]), settings["joiner"])


def learn_words(
    config: WordsConfig, blocks: Iterable[Sequence[Pair]]
) -> tuple[WordVocabulary, WordVocabulary]:
    """Dictionaries of both sides, most frequent words first; a DataError where none is frequent enough."""
    source = PieceCounter()
    target = source if config.joint else PieceCounter()
    for pair in chain.from_iterable(blocks):
        source.add(word for word in pair.source.split(" ") if word)
        target.add(word for word in pair.target.split(" ") if word)

    def vocabulary(counter: PieceCounter, side: str) -> WordVocabulary:
        dictionary = counter.dictionary(config.min_count, config.max_size)
        if len(dictionary) == FIRST:
            raise DataError(
                f"no {side} word occurs {config.min_count} times", "set data.vocabulary.min_count to less"
            )
        return WordVocabulary(dictionary, config.joiner)

    first = vocabulary(source, "source")
    return first, first if config.joint else vocabulary(target, "target")
