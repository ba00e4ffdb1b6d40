"""SentencePiece BPE and unigram models: learned here, kept as one `.model` file a side."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import sentencepiece

from deepwire.data.corpus import Pair
from deepwire.data.report import Reservoir
from deepwire.data.subwords.base import BOS, EOS, PAD, UNK, Vocabulary, mended
from deepwire.data.vocabulary_config import BpeConfig, UnigramConfig
from deepwire.errors import DataError, ModelError, ResourceError

SPACE = "\u2581"
"""SentencePiece writes a space as this character; in text it must be told from a space."""
ESCAPE = "\U000f2581"
"""A private-use character: in escaped text `ESCAPE 1` stands for `SPACE` and `ESCAPE 0` for itself."""

_THREADS = 8
"""Fixed, because the model that SentencePiece learns depends on it."""
_SAMPLE_SEED = 20_190
_QUIET = 5
_SEEDS = 2**32 - 1
"""Seeds of SentencePiece's generator; 2^32 - 1 itself asks for a random one."""
_LONGEST_LINE_BYTES = 16_384
_LONE_SURROGATE = (UnicodeEncodeError, RuntimeError)
"""What releases of SentencePiece raise for text that UTF-8 cannot hold."""

# SentencePiece has a generator in each thread but one seed for all: nobody may seed between seed and draw.
_generator = threading.Lock()


class SentencePieceVocabulary(Vocabulary):
    """A SentencePiece model with PAD 0, BOS 1, EOS 2, UNK 3.

    Args:
        model: The serialised model.
        where: What errors call it.

    Raises:
        ModelError: the bytes are no such model.
    """

    def __init__(self, model: bytes, where: str = "SentencePiece model") -> None:
        self.model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, ValueError, OSError):
            raise ModelError(f"{where}: not a SentencePiece model, or damaged") from None
        made = self._processor
        if (made.pad_id(), made.bos_id(), made.eos_id(), made.unk_id()) != (PAD, BOS, EOS, UNK):
            raise ModelError(f"{where}: its special pieces are not pad 0, bos 1, eos 2, unk 3")
        self._size = int(made.vocab_size())
        self._seeding_checked = False

    @property
    def size(self) -> int:
        """Number of entries."""
        return self._size

    @classmethod
    def load(cls, folder: Path, name: str) -> SentencePieceVocabulary:
        """Read `NAME.model` of a folder.

        Raises:
            ModelError: it is missing or damaged.
        """
        path = folder / f"{name}.model"
        try:
            return cls(path.read_bytes(), str(path))
        except OSError as fault:
            raise ModelError(f"{path}: cannot read: {fault.strerror}") from None

    def files(self, name: str) -> dict[str, bytes]:
        """The model, as `NAME.model`."""
        return {f"{name}.model": self.model}

    def encode(self, text: str) -> list[int]:
        """Text to piece numbers; spaces at the ends are dropped and runs of them count as one."""
        try:
            ids: list[int] = self._processor.encode(_escaped(text))
        except _LONE_SURROGATE:
            ids = self._processor.encode(_escaped(mended(text)))
        return ids

    def encode_lines(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text."""
        try:
            ids: list[list[int]] = self._processor.encode([_escaped(text) for text in texts], num_threads=1)
        except _LONE_SURROGATE:
            return super().encode_lines(texts)
        return ids

    def sample(self, text: str, seed: int, strength: float) -> list[int]:
        """BPE-dropout (Provilkov et al. 2020) or a draw from the unigram lattice (Kudo 2018, eq. 8)."""
        if strength == 0:
            return self.encode(text)
        if not self._seeding_checked:
            self._check_seeding()
        try:
            return self._draw(_escaped(text), seed, strength)
        except _LONE_SURROGATE:
            return self._draw(_escaped(mended(text)), seed, strength)

    def _draw(self, text: str, seed: int, strength: float) -> list[int]:
        with _generator:
            sentencepiece.set_random_generator_seed(seed % _SEEDS)
            ids: list[int] = self._processor.encode(text, enable_sampling=True, alpha=strength, nbest_size=-1)
        return ids

    def _check_seeding(self) -> None:
        """Releases up to 0.2.1 take only the first seed of a thread: an interrupted run could not go on."""
        pieces = sorted(map(self._piece, range(self.size)), key=len)[-20:]
        text = "".join(pieces).replace(SPACE, " ")
        if len({tuple(self._draw(text, 1, 0.5)) for _ in range(4)}) > 1:
            raise ResourceError(
                f"sentencepiece {sentencepiece.__version__} cannot repeat a random segmentation",
                "pip install 'sentencepiece>=0.2.3', or set data.vocabulary.sampling=0",
            )
        self._seeding_checked = True

    def _join(self, ids: list[int]) -> str:
        return _unescaped(self._processor.decode(ids))

    def _piece(self, number: int) -> str:
        return str(self._processor.id_to_piece(number))


class SentencePieceLearner:
    """Learns from a random sample of the training pairs, chosen while they pass by."""

    def __init__(self, config: BpeConfig | UnigramConfig) -> None:
        self._config = config
        self._sample = Reservoir(config.max_training_sentences, _SAMPLE_SEED)

    def add(self, pair: Pair) -> None:
        """Show the next pair."""
        self._sample.add(pair)

    def finish(self) -> tuple[Vocabulary, Vocabulary]:
        """Train one model for both sides, or one for each.

        Raises:
            DataError: the size asked for is not possible with this text.
        """
        if self._config.joint:
            both = self._train(_both_sides(self._sample.pairs), "the text of both sides")
            return both, both
        return (
            self._train((pair.source for pair in self._sample.pairs), "the source text"),
            self._train((pair.target for pair in self._sample.pairs), "the target text"),
        )

    def _train(self, lines: Iterator[str], what: str) -> Vocabulary:
        config, model = self._config, io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(_escaped, lines),
                model_writer=model,
                model_type=config.type,
                vocab_size=config.size,
                character_coverage=config.character_coverage,
                byte_fallback=config.byte_fallback,
                normalization_rule_name=config.normalization,
                pad_id=PAD,
                bos_id=BOS,
                eos_id=EOS,
                unk_id=UNK,
                unk_surface="\u2047",
                num_threads=_THREADS,
                max_sentence_length=_LONGEST_LINE_BYTES,
                minloglevel=_QUIET,
            )
        except RuntimeError as fault:
            raise _size_error(str(fault), config.size, what) from None
        return SentencePieceVocabulary(model.getvalue())


def _both_sides(pairs: Sequence[Pair]) -> Iterator[str]:
    """Source and target lines in turn."""
    for pair in pairs:
        yield pair.source
        yield pair.target


def _size_error(message: str, size: int, what: str) -> DataError:
    """SentencePiece's message about an impossible size, in words that help."""
    largest = re.search(r"set it to a value <= (\d+)", message)
    if largest:
        return DataError(
            f"data.vocabulary.size: {what} supports at most {largest[1]} pieces, not {size}",
            f"set data.vocabulary.size={largest[1]} or less, or add text",
        )
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if smallest:
        return DataError(
            f"data.vocabulary.size: {what} needs at least {smallest[1]} pieces to spell it, not {size}",
            f"set data.vocabulary.size={int(smallest[1]) + 1} or more, or a smaller character_coverage",
        )
    return DataError(f"no vocabulary can be learned from {what}: {message.splitlines()[0]}")


def _escaped(text: str) -> str:
    if SPACE in text or ESCAPE in text:
        return text.replace(ESCAPE, f"{ESCAPE}0").replace(SPACE, f"{ESCAPE}1")
    return text


def _unescaped(text: str) -> str:
    if ESCAPE in text:
        return text.replace(f"{ESCAPE}1", SPACE).replace(f"{ESCAPE}0", ESCAPE)
    return text
