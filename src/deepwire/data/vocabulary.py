"""The vocabularies of a translation model: subwords of both sides, kept together in one folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deepwire.data.subwords.base import BOS, EOS, PAD, UNK, Vocabulary
from deepwire.data.subwords.sentencepiece import (
    BpeVocabulary,
    PieceTableVocabulary,
    UnigramVocabulary,
    learn_sentencepiece,
)
from deepwire.data.subwords.subword_nmt import SubwordNmtVocabulary, learn_pieces
from deepwire.data.subwords.words import WordVocabulary, learn_words
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary_config import (
    BpeConfig,
    ExistingConfig,
    SubwordNmtConfig,
    UnigramConfig,
    VocabularyConfig,
    WordsConfig,
)
from deepwire.errors import DataError, ModelError
from deepwire.io.regular_files import read_regular

__all__ = ["BOS", "EOS", "PAD", "UNK", "Vocabularies", "Vocabulary"]

HEADER = "vocabulary.json"
_FORMAT = 1

_Loader = Callable[[Mapping[str, bytes], str], Vocabulary]

_LOADERS: dict[str, tuple[tuple[str, ...], _Loader]] = {
    "bpe": (("model",), BpeVocabulary.from_files),
    "unigram": (("model",), UnigramVocabulary.from_files),
    "subword_nmt": (("codes", "pieces.json", "allowed.json"), SubwordNmtVocabulary.from_files),
    "words": (("pieces.json", "settings.json"), WordVocabulary.from_files),
    "piece_table": (("model", "pieces.json"), PieceTableVocabulary.from_files),
}
"""The endings of the files of each type of vocabulary, and how it is made of their contents and a name."""


def existing(config: ExistingConfig) -> tuple[Path, str]:
    """The folder and the digest of the vocabulary of a run, of a model directory, or of a folder with one.

    Raises:
        DataError: there is none, or it is not what the configuration says.
    """
    # All checkpoints of a run have the same.
    places = [config.folder, config.folder / "vocabulary"]
    places += sorted(config.folder.glob("checkpoints/update-*/vocabulary"))[-1:]
    folder = next((place for place in places if (place / HEADER).is_file()), None)
    if folder is None:
        raise DataError(
            f"data.vocabulary.folder: {config.folder} has no vocabulary",
            "name a run with a checkpoint, a model directory or its folder vocabulary",
        )
    try:
        header = json.loads(read_regular(folder / HEADER))
        kind, joint, digest = str(header["type"]), bool(header["joint"]), str(header["digest"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{folder / HEADER}: damaged: not the header of a vocabulary") from None
    if joint != config.joint:
        raise DataError(
            f"{folder}: the vocabulary is {'joint' if joint else 'one for each side'}",
            f"set data.vocabulary.joint to {str(joint).lower()}",
        )
    if kind in ("words", "piece_table") and config.sampling:
        pieces = "words" if kind == "words" else "pieces of a table"
        raise DataError(
            f"{folder}: {pieces} cannot be segmented at random", "set data.vocabulary.sampling to 0"
        )
    return folder, digest


@dataclass(frozen=True)
class Vocabularies:
    """Source and target vocabulary of a model."""

    source: Vocabulary
    target: Vocabulary
    joint: bool
    """Whether a number means the same piece on both sides, so that embeddings can be shared."""
    type: str
    """`bpe`, `unigram`, `subword_nmt`, `words` or `piece_table`."""

    @classmethod
    def learn_from_blocks(cls, config: VocabularyConfig, blocks: Iterable[Sequence[Pair]]) -> Vocabularies:
        """Learns what `config` asks for from blocks of training pairs, in constant memory and repeatably.

        Raises:
            DataError: the text does not support what was asked for, or a file of codes is missing or damaged.
            ModelError: a vocabulary that should be there already is damaged.
        """
        match config:
            case ExistingConfig():
                for _ in blocks:  # who gives them wants them taken
                    pass
                return cls.load(existing(config)[0])
            case BpeConfig() | UnigramConfig():
                source, target = learn_sentencepiece(config, blocks)
            case SubwordNmtConfig():
                source, target = learn_pieces(config, blocks)
            case WordsConfig():
                source, target = learn_words(config, blocks)
        return cls(source, target, joint=config.joint, type=config.type)

    @property
    def sides(self) -> dict[str, Vocabulary]:
        """Both, by the name of their side."""
        return {"source": self.source, "target": self.target}

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits that differ for vocabularies that differ."""
        return _digest(self.type, self.joint, self._files())

    def save(self, folder: Path) -> None:
        """Write everything into `folder`, which is made if it is missing; the header comes last."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self._files().items():
            (folder / name).write_bytes(content)
        header = {
            "format": _FORMAT,
            "type": self.type,
            "joint": self.joint,
            "same": self.source is self.target,
            "source_size": self.source.size,
            "target_size": self.target.size,
            "digest": self.digest,
        }
        (folder / HEADER).write_text(json.dumps(header, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Vocabularies:
        """Read what `save` wrote; a ModelError where a file is missing, damaged, or not what was saved."""
        path = folder / HEADER
        try:
            header = json.loads(read_regular(path))
            kind, joint, same = str(header["type"]), bool(header["joint"]), bool(header["same"])
            if header["format"] != _FORMAT or kind not in _LOADERS:
                raise ModelError(f"{path}: a vocabulary this version cannot read", "update deepwire")
            digest = str(header["digest"])
            endings, made = _LOADERS[kind]
            files = {
                path.name: read_regular(path)
                for name in (("joint",) if same else ("source", "target"))
                for path in (folder / f"{name}.{ending}" for ending in endings)
            }
        except OSError as fault:
            raise ModelError(f"{fault.filename or path}: cannot read: {fault.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ModelError(f"{path}: damaged: not the header of a vocabulary") from None
        if _digest(kind, joint, files) != digest:
            raise ModelError(f"{folder}: damaged: a file of the vocabulary is not what was saved")
        source = made(files, "joint" if same else "source")
        return cls(source, source if same else made(files, "target"), joint, kind)

    def _files(self) -> dict[str, bytes]:
        if self.source is self.target:
            return self.source.files("joint")
        return self.source.files("source") | self.target.files("target")


def _digest(kind: str, joint: bool, files: Mapping[str, bytes]) -> str:
    digest = hashlib.blake2b(f"{_FORMAT} {kind} {joint}".encode(), digest_size=32)
    for name, content in sorted(files.items()):
        digest.update(f"\n{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
