"""Text that is segmented already: every word between spaces is an entry of a dictionary."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from deepwire.data.subwords.base import UNK, Vocabulary
from deepwire.data.subwords.dictionary import Dictionary, PieceCounter, as_json
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.errors import DataError, ModelError

UNKNOWN = "\u2047"
_JOINT = re.compile("@@(?: |$)")


class WordVocabulary(Vocabulary):
    """A dictionary of words.

    Args:
        dictionary: The words.
        joiner: `@@` when a word that ends so goes with the next one, as BPE writes it; `none` otherwise.
    """

    def __init__(self, dictionary: Dictionary, joiner: str) -> None:
        self._dictionary, self._joiner = dictionary, joiner

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self._dictionary)

    def encode(self, text: str) -> list[int]:
        """Words to numbers; words that are not in the dictionary become UNK."""
        return [self._dictionary.number(word) for word in text.split(" ") if word]

    def sample(self, text: str, seed: int, strength: float) -> list[int]:  # noqa: ARG002
        """The only segmentation there is.

        Raises:
            ValueError: randomness was asked for.
        """
        if strength != 0:
            raise ValueError("segmented text cannot be segmented at random: sampling must be 0")
        return self.encode(text)

    def _join(self, ids: list[int]) -> str:
        text = " ".join(UNKNOWN if number == UNK else self._dictionary.piece(number) for number in ids)
        return _JOINT.sub("", text) if self._joiner == "@@" else text

    def _piece(self, number: int) -> str:
        return self._dictionary.piece(number)

    def files(self, name: str) -> dict[str, bytes]:
        """The words and how they are joined."""
        settings = as_json({"joiner": self._joiner})
        return {f"{name}.pieces.json": self._dictionary.to_json(), f"{name}.settings.json": settings}

    @classmethod
    def load(cls, folder: Path, name: str) -> WordVocabulary:
        """Read what `files` gave.

        Raises:
            ModelError: a file is missing or damaged.
        """
        dictionary, path = Dictionary.load(folder / f"{name}.pieces.json"), folder / f"{name}.settings.json"
        try:
            joiner = json.loads(path.read_bytes())["joiner"]
        except OSError as fault:
            raise ModelError(f"{path}: cannot read: {fault.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            joiner = None
        if joiner not in ("@@", "none"):
            raise ModelError(f"{path}: damaged: no joiner in it")
        return cls(dictionary, joiner)


class WordLearner:
    """Counts the words of the training text."""

    def __init__(self, config: WordsConfig) -> None:
        self._config = config
        self._source = PieceCounter()
        self._target = self._source if config.joint else PieceCounter()

    def add(self, pairs: Sequence[Pair]) -> None:
        """Show the next pairs."""
        for pair in pairs:
            self._source.add(word for word in pair.source.split(" ") if word)
            self._target.add(word for word in pair.target.split(" ") if word)

    def finish(self) -> tuple[Vocabulary, Vocabulary]:
        """The dictionaries, most frequent words first.

        Raises:
            DataError: no word is frequent enough.
        """
        source = self._vocabulary(self._source, "source")
        return source, source if self._config.joint else self._vocabulary(self._target, "target")

    def _vocabulary(self, counter: PieceCounter, side: str) -> Vocabulary:
        dictionary = counter.dictionary(self._config.min_count, self._config.max_size)
        if len(dictionary) == len(Dictionary([])):
            raise DataError(
                f"no {side} word occurs {self._config.min_count} times",
                "set data.vocabulary.min_count to less",
            )
        return WordVocabulary(dictionary, self._config.joiner)
