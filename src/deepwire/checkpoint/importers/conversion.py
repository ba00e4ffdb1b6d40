"""A foreign checkpoint as a model: its vocabularies read, every tensor and every parameter accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from deepwire.checkpoint.importers.foreign_checkpoint import ForeignCheckpoint
from deepwire.checkpoint.importers.importer import HEAD, SOURCE, Destination, Destinations, Importer
from deepwire.data.subwords.base import Vocabulary
from deepwire.data.subwords.subword_nmt import SEPARATOR, Merges, Segmenter, SubwordNmtVocabulary
from deepwire.data.subwords.words import Dictionary, WordVocabulary
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import DataError, ModelError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.meta_init import outline
from deepwire.model.translation_model import TranslationModel


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
    for path in filter(None, (files.source, files.target, files.codes, files.target_codes)):
        if path.is_fifo() or path.is_char_device():
            raise DataError(f"{path}: is not a regular file")
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


_SHOWN = 4
_CONSTANT = 1e-6
"""Weights that are not learned are equal to the constants of this project up to rounding."""


class ParameterFiller:
    """Fills the parameters of a model and remembers what did not fit.

    Args:
        model: What is filled.
        path: What messages call the checkpoint.
    """

    def __init__(self, model: TranslationModel, path: Path) -> None:
        self._path = path
        self._parameters = dict(model.named_parameters(remove_duplicate=False))
        self._own = [name for name, _ in model.named_parameters()]
        self._constants = dict(model.named_buffers())
        self._filled = {
            id(value): torch.zeros(value.size(0) if value.dim() else 1, dtype=torch.bool)
            for value in self._parameters.values()
        }
        self._known = self._parameters.keys() | self._constants.keys()
        self.unknown: list[str] = []
        self._misfits: list[str] = []
        self._not_finite: list[str] = []

    def put(self, name: str, value: Tensor, destinations: Destinations) -> None:
        """Copy the tensor called `name` to its destinations; none says that nothing depends on it."""
        if not destinations:
            return
        value = value.to(torch.float32)
        if not bool(torch.isfinite(value).all()):
            self._not_finite.append(f"{name} is not finite")
        elif any(name not in self._known for name, _, _ in destinations):
            self.unknown.append(name)
        else:
            self._put(name, value, destinations)

    def finish(self) -> None:
        """Check that nothing is unknown, nothing missing, and everything of the right shape.

        Raises:
            ModelError: Naming the first of each kind, and how many there are; those with NaN or infinity
                alone, where there are any.
        """
        if broken := _listed(self._not_finite, "holds NaN or infinity in {} of its tensors", between="; "):
            raise ModelError(f"{self._path}: {broken}", "training had diverged: import an earlier checkpoint")
        missing = [name for name in self._own if not bool(self._filled[id(self._parameters[name])].all())]
        wrong = [
            _listed(self.unknown, "has no place for {} of the checkpoint's tensors"),
            _listed(missing, "finds no value for {} of its parameters"),
            _listed(self._misfits, "cannot take {} of the checkpoint's tensors", between="; "),
        ]
        if any(wrong):
            raise ModelError(
                f"{self._path}: the architecture {'; it '.join(text for text in wrong if text)}",
                "is it the architecture of this checkpoint? Settings: --run RUNFILE, or model.key=value",
            )

    def _put(self, name: str, value: Tensor, destinations: Destinations) -> None:
        targets = [self._target(destination) for destination in destinations]
        sizes = [target.size(0) for target, _ in targets]
        pieces = [value]
        if len(targets) > 1 and value.dim() and value.size(0) == sum(sizes):
            pieces = list(torch.split(value, sizes))
        if [_without_ones(piece) for piece in pieces] != [_without_ones(target) for target, _ in targets]:
            shapes = " and ".join(str(list(target.shape)) for target, _ in targets)
            self._misfits.append(f"{name} is {list(value.shape)}, not {shapes}")
            return
        for piece, (target, filled) in zip(pieces, targets, strict=True):
            piece = piece.reshape(target.shape)
            if filled is None:
                if not _is_constant(piece, target):
                    self._misfits.append(f"{name} is learned, but the architecture has a constant there")
            elif bool(filled.any()) and not torch.equal(target, piece):
                self._misfits.append(f"{name} differs from another tensor that the architecture ties to it")
            else:
                target.copy_(piece)
                filled.fill_(True)

    def _target(self, destination: Destination) -> tuple[Tensor, Tensor | None]:
        """The values at a destination, and which of them are filled; None for a constant."""
        parameter = self._parameters.get(destination.name)
        if parameter is None:
            return self._constants[destination.name], None
        filled = self._filled[id(parameter)]
        part = slice(0, len(filled))
        if destination.parts > 1:
            size = len(filled) // destination.parts
            part = slice(destination.part * size, (destination.part + 1) * size)
        return parameter.detach()[part], filled[part]


def _without_ones(value: Tensor) -> list[int]:
    return [size for size in value.shape if size != 1]


def _is_constant(weights: Tensor, constant: Tensor) -> bool:
    """Whether weights that combine layers are the constant ones; those above the diagonal are never used."""
    used = torch.ones(weights.shape[:2]).tril().unsqueeze(-1)
    return bool(((weights - constant) * used).abs().max() < _CONSTANT)


def _listed(names: Sequence[str], text: str, between: str = ", ") -> str:
    if not names:
        return ""
    more = f"{between}..." if len(names) > _SHOWN else ""
    return f"{text.format(len(names))} ({between.join(names[:_SHOWN])}{more})"


def fill_parameters(
    model: TranslationModel, path: Path, values: Iterable[tuple[str, Tensor, Destinations | None]]
) -> None:
    """Fill all parameters of a model from foreign tensors; None as destinations says that a name is unknown.

    Raises:
        ModelError: Something is unknown, missing, of another shape, or not finite.
    """
    filler = ParameterFiller(model, path)
    with torch.no_grad():
        for name, value, destinations in values:
            if destinations is None:
                filler.unknown.append(name)
            else:
                filler.put(name, value, destinations)
    filler.finish()


_MOST_COPIES = 3
"""One table of a checkpoint can become both embeddings and the output projection."""


def convert(
    importer: Importer, foreign: ForeignCheckpoint, config: ModelConfig, vocabularies: Vocabularies
) -> TranslationModel:
    """Build the model of `config` and fill it from the checkpoint, in the order of our ids.

    Raises:
        ModelError: The vocabulary has another size, or names and shapes do not fit the architecture.
        UsageError: One embedding for vocabularies of different sizes.
    """
    tables = importer.embeddings(config, foreign)
    for parameter, size in ((SOURCE, vocabularies.source.size), (HEAD, vocabularies.target.size)):
        name, value = tables.get(parameter, ("", None))
        if value is not None and value.size(0) != size:
            raise ModelError(
                f"{foreign.path}: {name} has {value.size(0)} rows, but the vocabulary has {size} entries, "
                "the four special ones included",
                "is it the vocabulary of this model, and complete?",
            )
    final = importer.final_config(config)
    build = partial(
        build_model,
        final,
        vocabularies.source.size,
        vocabularies.target.size,
        languages=importer.languages(foreign),
    )
    _refuse_larger(outline(final, build), foreign)
    model = build()

    def values() -> Iterator[tuple[str, Tensor, Destinations | None]]:
        for parameter, (name, value) in tables.items():
            yield name, value, (Destination(parameter),)
        lookups = {name for names in importer.tables for name in names}
        for name, value in foreign.tensors.items():
            if name not in lookups and not importer.ignores(name):
                yield name, value, importer.destinations_of(name, model, foreign)

    fill_parameters(model, foreign.path, values())
    return model.eval()


def _refuse_larger(model: TranslationModel, foreign: ForeignCheckpoint) -> None:
    """Before memory is taken: a checkpoint cannot fill a model of many times its size."""
    wanted = sum(parameter.numel() for parameter in model.parameters())
    held = sum(tensor.numel() for tensor in foreign.tensors.values())
    if wanted > _MOST_COPIES * held:
        raise ModelError(
            f"{foreign.path}: holds {held:,} numbers, but the architecture has {wanted:,} parameters",
            "is it the architecture of this checkpoint? Settings: --run RUNFILE, or model.key=value",
        )
