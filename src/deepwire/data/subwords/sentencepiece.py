"""SentencePiece BPE and unigram models, one `.model` file a side; learned from a sample of the text.

Models of other toolkits may come with a table of ids for their pieces, as those of OPUS-MT do.
"""

from __future__ import annotations

import io
import random
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain, permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TypeVar
from unicodedata import normalize

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from deepwire.data.subwords.base import BOS, EOS, PAD, UNK, Segmentation, Vocabulary, id_dtype
from deepwire.data.subwords.sampling import LONGEST_KEPT, NEVER, DropoutMerges, Lattice
from deepwire.data.subwords.words import UNKNOWN, Dictionary, DictionaryVocabulary
from deepwire.data.text.pairs import Pair, Reservoir, Texts, hashes, without_surrogates
from deepwire.data.vocabulary_config import BpeConfig, UnigramConfig
from deepwire.errors import DataError, ModelError

Made = TypeVar("Made")

SPACE = "\u2581"
"""SentencePiece writes a space as this character; in text it must be told from a space."""
ESCAPE = "\U000f2581"
"""A private-use character: in escaped text `ESCAPE 1` stands for `SPACE` and `ESCAPE 0` for itself."""

_LONE_SURROGATE = (UnicodeEncodeError, RuntimeError, TypeError)
"""The errors of SentencePiece for text that UTF-8 cannot hold, by release and call."""

_WORD = re.compile(f"{SPACE}[^{SPACE}]*|[^{SPACE}]+")
"""Pieces do not reach over the start of a word, so words can be cut one by one."""
_UNKNOWN_PENALTY = 10.0
"""SentencePiece's own: an unknown character is that much less likely than the rarest piece."""
_MAX_CACHED = 1 << 16
_MAX_PIECES = 1 << 22
_KEY = secrets.randbits(64)  # nobody can make a word that is taken for another


def read_processor(model: bytes, where: str) -> sentencepiece.SentencePieceProcessor:
    """A serialised SentencePiece model; a ModelError where the bytes are none."""
    try:
        if not model:
            raise ValueError  # which makes a processor that says so on stderr at every use
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except (RuntimeError, ValueError, OSError):
        raise ModelError(f"{where}: not a SentencePiece model, or damaged") from None


class SentencePieceVocabulary(Vocabulary):
    """A serialised SentencePiece model with PAD 0, BOS 1, EOS 2, UNK 3.

    Raises:
        ModelError: the bytes are no such model.
    """

    def __init__(self, model: bytes) -> None:
        self.model, self._processor = model, read_processor(model, "SentencePiece model")
        processor = self._processor
        special = (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id())
        if special != (PAD, BOS, EOS, UNK):
            raise ModelError("SentencePiece model: its special pieces are not pad 0, bos 1, eos 2, unk 3")
        self._size = int(processor.vocab_size())

    @property
    def size(self) -> int:
        """Number of entries."""
        return self._size

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], name: str) -> Self:
        """The vocabulary of which `files` gave these."""
        return cls(files[f"{name}.model"])

    def files(self, name: str) -> dict[str, bytes]:
        """The model, as `NAME.model`."""
        return {f"{name}.model": self.model}

    def encode(self, text: str) -> list[int]:
        """Text to piece numbers; spaces at the ends are dropped and runs of them count as one."""
        return _given(self._processor.encode, text)

    def encode_lines(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text."""
        try:
            ids: list[list[int]] = self._processor.encode([escaped(text) for text in texts], num_threads=1)
        except _LONE_SURROGATE:
            return super().encode_lines(texts)
        return ids

    def sample(self, text: str, seed: int, strength: float) -> list[int]:
        """A random segmentation; the text is normalised as in `encode`."""
        if strength == 0:
            return self.encode(text)
        normal = _given(self._processor.normalize, text)
        generator, piece_ids, ids = random.Random(seed), self._piece_ids, list[int]()
        for word in _WORD.findall(normal):
            for piece in self._cut(word, strength, generator):
                if piece in piece_ids:
                    ids.append(piece_ids[piece])
                else:
                    self._spell(piece, ids)
        return ids

    @abstractmethod
    def _cut(self, word: str, strength: float, generator: random.Random) -> list[str]:
        """A word as pieces, drawn at random; a piece that is none is a single character."""

    def _spell(self, character: str, ids: list[int]) -> None:
        """Append the bytes of a character, or UNK (one for several in a row) where there are no bytes."""
        if self._bytes:
            ids.extend(self._bytes[value] for value in character.encode())
        elif not ids or ids[-1] != UNK:
            ids.append(UNK)

    @cached_property
    def _bytes(self) -> list[int]:
        first = self._processor.piece_to_id("<0x00>")
        return list(range(first, first + 256)) if self._processor.is_byte(first) else []

    @cached_property
    def _piece_ids(self) -> dict[str, int]:
        processor = self._processor
        return {
            processor.id_to_piece(number): number
            for number in range(self._size)
            if not (processor.is_control(number) or processor.is_unknown(number) or processor.is_byte(number))
        }

    def _decode_ids(self, ids: list[int]) -> str:
        return unescaped(self._processor.decode(ids))

    def spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """See the base class; the spelling of the pieces tells it sooner, where that is the text."""
        pieces = [self._piece(number).replace(SPACE, " ") for number in ids]
        if not ids or "".join(pieces).lstrip(" ") != self.decode(ids):
            return super().spans(ids)
        lead = len(pieces[0]) - len(pieces[0].lstrip(" "))
        ends = [max(0, end - lead) for end in accumulate(map(len, pieces))]
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def _piece(self, number: int) -> str:
        return str(self._processor.id_to_piece(number))


class BpeVocabulary(SentencePieceVocabulary):
    """Byte-pair encoding; sampling is BPE-dropout (Provilkov et al. 2020)."""

    def segment(self, texts: Texts) -> Segmentation:
        """`encode` of each text, as arrays; each word is cut once, as merges never reach over a space."""
        if not self._cuts_at_spaces:
            return super().segment(texts)
        data, ends = texts.data, np.cumsum(texts.sizes, dtype=np.int64)
        spaces = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(" "))
        # Every space and every end of a text ends a word, perhaps an empty one.
        edges = [np.concatenate([ends - texts.sizes, spaces + 1]), np.concatenate([ends, spaces])]
        starts, stops = spans = np.sort(edges, kind="stable")
        parts = hashes(data, starts, stops - starts, _KEY)
        keys, firsts, which = np.unique(parts, return_index=True, return_inverse=True)
        if len(self._known[2]) > _MAX_PIECES:
            del self._known
        known, places, pieces = self._known
        rows = np.searchsorted(known, keys)
        new = known.take(rows, mode="clip") != keys
        words = [data[start:stop].decode() for start, stop in spans.T[firsts[new]].tolist()]
        added, counts = Segmentation.of(self.encode_lines(words), self.size)
        places = np.insert(places, rows[new], [len(pieces) + np.cumsum(counts) - counts, counts], axis=1)
        pieces = np.concatenate([pieces, added])
        self._known = np.insert(known, rows[new], keys[new]), places, pieces
        begins, chosen = places[:, (rows + np.cumsum(new) - new)[which]]
        letters = np.arange(chosen.sum()) + np.repeat(begins - np.cumsum(chosen) + chosen, chosen)
        first_words = np.searchsorted(spaces, ends - texts.sizes) + np.arange(len(ends))
        return Segmentation(pieces[letters], np.add.reduceat(chosen, first_words))

    @cached_property
    def _known(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.integer]]:
        """Hash 0 and those of words that came before; where and how many are their ids; all ids."""
        return np.zeros(1, np.uint64), np.zeros((2, 1), np.int64), np.zeros(0, id_dtype(self.size))

    @cached_property
    def _cuts_at_spaces(self) -> bool:
        """Whether the model cuts text at spaces, as those that are learned here do."""
        pieces = self._piece_ids
        by_words = SPACE in pieces and all(SPACE not in piece[1:] for piece in pieces)
        return by_words and self._processor.normalize("  a  b ") == f"{SPACE}a{SPACE}b"

    def _cut(self, word: str, strength: float, generator: random.Random) -> list[str]:
        return self._merges.cut(word, strength, generator)

    @cached_property
    def _merges(self) -> DropoutMerges:
        return DropoutMerges(list, self._rank)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """The better the score, the earlier a piece is merged; single characters need no merge."""
        score = self._processor.get_score
        return {piece: -int(score(number)) for piece, number in self._piece_ids.items() if len(piece) > 1}

    def _rank(self, left: str, right: str) -> int:
        return self._ranks.get(left + right, NEVER)


class UnigramVocabulary(SentencePieceVocabulary):
    """Unigram language model (Kudo 2018); sampling draws from all segmentations, smoothed by alpha."""

    def _cut(self, word: str, strength: float, generator: random.Random) -> list[str]:
        lattice = self._kept_lattice if len(word) <= LONGEST_KEPT else self._new_lattice
        return lattice(word, strength).draw(generator)

    @cached_property
    def _kept_lattice(self) -> Callable[[str, float], Lattice]:
        return lru_cache(_MAX_CACHED)(self._new_lattice)

    @cached_property
    def _new_lattice(self) -> Callable[[str, float], Lattice]:
        scores = {piece: self._processor.get_score(number) for piece, number in self._piece_ids.items()}
        unknown, longest = min(scores.values()) - _UNKNOWN_PENALTY, max(map(len, scores))
        return partial(Lattice, scores, unknown, longest)


def _given(function: Callable[[str], Made], text: str) -> Made:
    """A function of SentencePiece called with a text; halves of surrogate pairs in it become U+FFFD."""
    try:
        return function(escaped(text))
    except _LONE_SURROGATE:
        return function(escaped(without_surrogates(text)))


def escaped(text: str) -> str:
    """Text in which no character looks like SentencePiece's space."""
    if SPACE in text or ESCAPE in text:
        return text.replace(ESCAPE, f"{ESCAPE}0").replace(SPACE, f"{ESCAPE}1")
    return text


def unescaped(text: str) -> str:
    """Undo `escaped`."""
    if ESCAPE in text:
        return text.replace(f"{ESCAPE}1", SPACE).replace(f"{ESCAPE}0", ESCAPE)
    return text


_THREADS = 8
"""Fixed, because the model that SentencePiece learns depends on it."""
_SAMPLE_SEED = 20_190
_QUIET = 5
_LONGEST_LINE_BYTES = 16_384
_SPACES = "\t\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_WITHOUT_WIDTH = (
    "\u00ad\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
"""Without the joiners, which are spelling, and what says how an emoji looks."""
_MAX_MARKS = 3
_NO_RULE_FILE = b"\x1a\x02\x32\x00"
"""Behind a model, where it empties `normalizer_spec.normalization_rule_tsv`: the name of a temporary file."""


def learn_sentencepiece(
    config: BpeConfig | UnigramConfig, blocks: Iterable[Sequence[Pair]]
) -> tuple[Vocabulary, Vocabulary]:
    """Trains one model for both sides, or one for each, on a random sample of pairs that pass by.

    Errors as of `train_model`.
    """
    sample = Reservoir(config.max_training_sentences, _SAMPLE_SEED)
    for block in blocks:
        sample.extend(block)
    sources, targets = [pair.source for pair in sample.pairs], [pair.target for pair in sample.pairs]
    if config.joint:
        of_text = "the text of both sides" if any(sources) else "the text"  # that of a language model
        both = train_model(config, chain.from_iterable(zip(sources, targets, strict=True)), of_text)
        return both, both
    return train_model(config, sources, "the source text"), train_model(config, targets, "the target text")


def train_model(config: BpeConfig | UnigramConfig, lines: Iterable[str], text_name: str) -> Vocabulary:
    """Learns a SentencePiece model from lines.

    Raises:
        DataError: the size asked for is not possible with this text.
    """
    model, lines = io.BytesIO(), list(lines)
    try:
        with _rule_file(config, lines) as rules:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(escaped, lines),
                model_writer=model,
                model_type=config.type,
                vocab_size=config.size,
                character_coverage=config.character_coverage,
                byte_fallback=config.byte_fallback,
                normalization_rule_name=config.normalization,
                normalization_rule_tsv=rules,
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
        raise _size_error(str(fault), config.size, text_name) from None
    vocabulary: type[SentencePieceVocabulary] = BpeVocabulary if config.type == "bpe" else UnigramVocabulary
    read = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue() + _NO_RULE_FILE)
    return vocabulary(read.serialized_model_proto())


@contextmanager
def _rule_file(config: BpeConfig | UnigramConfig, lines: Iterable[str]) -> Iterator[str]:
    """The name of a file for as long as a model is trained; empty where the setting has rules of its own."""
    if config.normalization != "identity":
        yield ""
        return
    with TemporaryDirectory(prefix="deepwire-rules-") as folder:
        rules = Path(folder, "rules.tsv")
        read = lookalikes(set[str]().union(*lines)).items()
        rules.write_text("".join(f"{_codes(form)}\t{_codes(same)}\n" for form, same in read), "ascii")
        yield str(rules)


def lookalikes(known: Set[str]) -> dict[str, str]:
    """How text with other characters than the known ones is read: as those that a reader takes it for.

    Text of known characters alone has none of the keys, so it is read as it is.
    """
    read = dict.fromkeys(_SPACES, " ") | dict.fromkeys(_WITHOUT_WIDTH, "")
    read |= {form: composed for composed in known for form in _decomposed(composed)}
    return {form: same for form, same in read.items() if not set(form) <= known}


def _decomposed(composed: str) -> Iterator[str]:
    """The other forms that Unicode's form C makes this character of."""
    base, *marks = tuple(normalize("NFD", composed))
    for order in permutations(marks) if len(marks) <= _MAX_MARKS else ():
        for place in range(len(order)):
            form = normalize("NFC", base + "".join(order[:place])) + "".join(order[place:])
            if form != composed and normalize("NFC", form) == composed:
                yield form


def _codes(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)


def _size_error(message: str, size: int, text_name: str) -> DataError:
    """SentencePiece's message about an impossible size, in words that help."""
    largest = re.search(r"set it to a value <= (\d+)", message)
    if largest:
        return DataError(
            f"data.vocabulary.size: {text_name} supports at most {largest[1]} pieces, not {size}",
            f"set data.vocabulary.size={largest[1]} or less, or add text",
        )
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if smallest:
        return DataError(
            f"data.vocabulary.size: {text_name} needs at least {smallest[1]} pieces to spell it, not {size}",
            f"set data.vocabulary.size={smallest[1]} or more, or a smaller character_coverage",
        )
    return DataError(f"no vocabulary can be learned from {text_name}: {message.splitlines()[0]}")


_TAG = re.compile(r"(>>[^<>\s]+<<|__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2})(\s+|(?<=[<_])|$)")
"""Language tags as OPUS-MT, M2M-100, NLLB and mBART write them."""


class PieceTableVocabulary(DictionaryVocabulary):
    """A SentencePiece model segments text, and a table maps pieces to ids; pieces missing there are UNK.

    Two sides may share a table and have different models. A language tag in front of a text,
    such as `>>fra<<`, is one piece if the table has it, and is left out of decoded text.

    Args:
        model: The serialised SentencePiece model; a ModelError if it is none.
        table: Ordinary pieces, with ids from 4.
        where: The name of the model in errors.
    """

    def __init__(self, model: bytes, table: Dictionary, where: str = "SentencePiece model") -> None:
        self.model, self._dictionary = model, table
        self._processor = read_processor(model, where)

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], name: str) -> Self:
        """Loads what `files` returned."""
        return cls(files[f"{name}.model"], Dictionary.from_json(files[f"{name}.pieces.json"]))

    def files(self, name: str) -> dict[str, bytes]:
        """The model and the table."""
        return {f"{name}.model": self.model, f"{name}.pieces.json": self._dictionary.to_json()}

    def encode(self, text: str) -> list[int]:
        """Text to piece ids."""
        tag = self.tag_of(text)
        pieces, text = [tag.rstrip()] if tag else [], text.removeprefix(tag)
        pieces += self._processor.encode(text.encode("utf-8", "replace").decode(), out_type=str)
        return [self._dictionary.id(piece) for piece in pieces]

    def tag_of(self, text: str) -> str:
        """See the base class; a tag that is not in the table is none."""
        tag = _TAG.match(text)
        return tag[0] if tag is not None and self._dictionary.id(tag[1]) != UNK else ""

    def _decode_ids(self, ids: list[int]) -> str:
        pieces = [UNKNOWN if i == UNK else self._piece(i) for i in ids]
        pieces = [piece for piece in pieces if _TAG.fullmatch(piece) is None]
        return str(self._processor.decode_pieces(pieces)).strip()
