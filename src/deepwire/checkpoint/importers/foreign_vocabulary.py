"""Vocabularies of other programs as ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepwire.checkpoint.importers.importer import Importer
from deepwire.data.subwords.base import Vocabulary
from deepwire.data.subwords.subword_nmt import SEPARATOR, Merges, Segmenter, SubwordNmtVocabulary
from deepwire.data.subwords.words import Dictionary, WordVocabulary
from deepwire.data.vocabulary import Vocabularies


@dataclass(frozen=True)
class VocabularyFiles:
    """Where the vocabularies of a foreign model are.

    Attributes:
        source, target: Files of pieces; the same path twice where both sides share one.
        codes, target_codes: Merges of subword-nmt, where text is to be segmented here; None means that text
            comes segmented. Without `target_codes`, both sides use `codes`.
    """

    source: Path
    target: Path
    codes: Path | None = None
    target_codes: Path | None = None


def read_vocabularies(importer: Importer, files: VocabularyFiles) -> Vocabularies:
    """Read them; ordinary ids stay what they are, the four special ones become ours.

    Raises:
        DataError: A file is missing or is not what it should be.
    """
    joint = files.source == files.target
    pieces = importer.read_pieces(files.source)
    target_pieces = pieces if joint else importer.read_pieces(files.target)
    if files.codes is None:
        source = _words(pieces)
        return Vocabularies(source, source if joint else _words(target_pieces), joint, "words")
    merges = Merges.read(files.codes)
    same_codes = files.target_codes in (None, files.codes)
    first = _segmented(merges, pieces)
    if joint and same_codes:
        return Vocabularies(first, first, joint, "subword_nmt")
    other = merges if same_codes or files.target_codes is None else Merges.read(files.target_codes)
    return Vocabularies(first, _segmented(other, target_pieces), joint, "subword_nmt")


def _words(pieces: list[str]) -> Vocabulary:
    joined = any(piece.endswith(SEPARATOR) for piece in pieces)
    return WordVocabulary(Dictionary(pieces), SEPARATOR if joined else "none")


def _segmented(merges: Merges, pieces: list[str]) -> Vocabulary:
    """Pieces `x@@` and `x` of a file are `x` and `x ` in a dictionary of ours."""
    written = [
        piece.removesuffix(SEPARATOR) if piece.endswith(SEPARATOR) else f"{piece} " for piece in pieces
    ]
    return SubwordNmtVocabulary(Segmenter(merges), Dictionary(written))
