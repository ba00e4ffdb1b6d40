"""Base of the importers: the architecture of a foreign checkpoint, and a place for each of its tensors."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from deepwire.config.yaml_tree import PlainValue
from deepwire.convert.importers.foreign_checkpoint import ForeignCheckpoint, read_foreign_checkpoint
from deepwire.data.subwords.base import Vocabulary
from deepwire.data.subwords.subword_nmt import SEPARATOR, Segmenter, SubwordNmtVocabulary
from deepwire.data.subwords.words import Dictionary, WordVocabulary
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.shortlist import ShortlistTable
from deepwire.errors import DataError, ModelError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.meta_init import outline
from deepwire.model.translation_model import TranslationModel

SOURCE, TARGET, HEAD = ("source_embedding.table.weight", "target_embedding.table.weight", "head.table.weight")
_SHOWN = 4
_CONSTANT = 1e-6
"""Largest difference between a stored weight and a constant of the architecture: rounding."""
_MAX_COPIES = 3
"""Parameters for each stored number: one table can be both embeddings and the output projection."""
_WHICH_ARCHITECTURE = "is it the architecture of this checkpoint? Settings: --run RUNFILE, or model.key=value"


@dataclass(frozen=True)
class Architecture:
    """The run file that would have made a checkpoint, as far as it tells. Keys are dotted: `model.heads`.

    Attributes:
        known: Settings read from its arguments, names and shapes.
        assumed: Settings that it does not tell, as the program has them by default.
        needed: Settings that it does not tell and that have no usual value.
    """

    known: Mapping[str, PlainValue]
    assumed: Mapping[str, PlainValue] = field(default_factory=dict)
    needed: Sequence[str] = ()

    @property
    def settings(self) -> dict[str, PlainValue]:
        """All of those that have a value."""
        return {**self.assumed, **self.known}


class Destination(NamedTuple):
    """Where a foreign tensor, or a part of one, goes: a parameter, or one of several equal parts of it."""

    name: str
    part: int = 0
    parts: int = 1


Destinations = tuple[Destination, ...]
"""A foreign tensor is cut along its first axis; each piece goes to the next destination."""


class Importer(ABC):
    """Checkpoints of one program.

    Attributes:
        name: The program on the command line.
        source_bos: Whether its sources begin with BOS.
        files: Names of its vocabularies: the one of both languages, those of the source and of the target.
        tables: Names under which it may keep the source embedding, the target embedding and the output
            projection; of each, the first that is there.
    """

    name: ClassVar[str]
    source_bos: ClassVar[bool]
    files: ClassVar[tuple[str, str, str]]
    tables: ClassVar[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]

    def read(self, path: Path) -> ForeignCheckpoint:
        """Read a checkpoint; nothing in it is run.

        Raises:
            ModelError: It cannot be read.
        """
        return read_foreign_checkpoint(path)

    def own_vocabularies(self, foreign: ForeignCheckpoint) -> Vocabularies | None:
        """The vocabularies in the checkpoint's folder; None where the user names their files."""
        return None

    @abstractmethod
    def architecture(self, foreign: ForeignCheckpoint) -> Architecture:
        """The architecture of the checkpoint.

        Raises:
            ModelError: It is of a kind that cannot be expressed here, or of none that is known.
        """

    @abstractmethod
    def destinations_of(
        self, name: str, model: TranslationModel, foreign: ForeignCheckpoint
    ) -> Destinations | None:
        """The destinations of a tensor that is no embedding: none of a buffer, None for an unknown name."""

    def languages(self, foreign: ForeignCheckpoint) -> int:
        """How many target languages have parameters of their own; 0 in a model of one language pair."""
        return 0

    def with_language_order(self, foreign: ForeignCheckpoint, order: Sequence[int]) -> ForeignCheckpoint:
        """The checkpoint with its languages in another order: the first is number `order[0]` there."""
        return foreign

    def read_pieces(self, path: Path) -> list[str]:
        """The ordinary pieces of a vocabulary file, in the order of their ids from 4; not without such files.

        Raises:
            DataError: It is missing, or is no such file.
        """
        raise NotImplementedError

    def vocabulary_files(self, folder: Path, source: str, target: str) -> tuple[Path, Path]:
        """The vocabulary files of both languages in a folder, one file twice where they share it."""
        shared, *sides = (folder / name.format(source=source, target=target) for name in self.files)
        return (shared, shared) if shared.exists() else (sides[0], sides[1])

    def shortlist(self, foreign: ForeignCheckpoint) -> ShortlistTable | None:
        """The shortlist that belongs to the checkpoint, in our ids; None without.

        Raises:
            ModelError: It is damaged, or of other vocabularies.
        """
        return None

    def final_config(self, config: ModelConfig) -> ModelConfig:
        """The architecture, with the symbol that this program's decoder starts with in `embeddings.start`."""
        return config

    def rows(self, table: Tensor) -> Tensor:
        """The rows of an embedding in the order of our ids."""
        return table

    def embeddings(self, config: ModelConfig, foreign: ForeignCheckpoint) -> dict[str, tuple[str, Tensor]]:
        """The three tables in the order of our ids, by parameter, each with the foreign name."""
        chosen = [next((name for name in names if name in foreign.tensors), None) for names in self.tables]
        tie = config.embeddings.tie
        if tie in ("all", "inputs") and chosen[1] is None:
            chosen[1] = chosen[0]
        if tie in ("all", "output") and chosen[2] is None:
            chosen[2] = chosen[1]
        return {
            parameter: (name, self.rows(foreign.tensors[name]))
            for parameter, name in zip((SOURCE, TARGET, HEAD), chosen, strict=True)
            if name is not None
        }


def number_of_layers(foreign: ForeignCheckpoint, pattern: str) -> int:
    """How many layers a stack has, whose parameters have the layer as first group of a pattern.

    Raises:
        ModelError: There cannot be so many.
    """
    matches = [re.match(pattern, name) for name in foreign.tensors]
    layers = max((int(match[1]) for match in matches if match), default=-1) + 1
    if layers > len(matches):
        raise ModelError(f"{foreign.path}: has a layer {layers - 1}, but only {len(matches)} tensors")
    return layers


def tied_tables(source: Tensor, target: Tensor, output: Tensor) -> str:
    """The setting `embeddings.tie` of three tables: which of them are equal."""
    inputs, outputs = (
        one.shape == other.shape and torch.equal(one, other)
        for one, other in ((source, target), (target, output))
    )
    return ("all" if inputs else "output") if outputs else ("inputs" if inputs else "none")


def read_vocabularies(
    importer: Importer,
    source: Path,
    target: Path,
    codes: Path | None = None,
    target_codes: Path | None = None,
) -> Vocabularies:
    """Read vocabularies; ordinary ids stay what they are, the four special ones become ours.

    Args:
        importer: Of the program.
        source, target: Files of pieces; the same path twice where both sides share one.
        codes, target_codes: Merges of subword-nmt, where text is to be segmented here; None means that text
            comes segmented. Without `target_codes`, both sides use `codes`.

    Raises:
        DataError: A file is missing or is not what it should be.
    """
    for path in filter(None, (source, target, codes, target_codes)):
        if path.is_fifo() or path.is_char_device():
            raise DataError(f"{path}: is not a regular file")
    joint, target_codes = source == target, target_codes or codes
    read = _vocabulary(importer.read_pieces(source), codes)
    same = joint and target_codes == codes
    other = read if same else _vocabulary(importer.read_pieces(target), target_codes)
    return Vocabularies(read, other, joint, "words" if codes is None else "subword_nmt")


def _vocabulary(pieces: list[str], codes: Path | None) -> Vocabulary:
    joined = [piece.endswith(SEPARATOR) for piece in pieces]
    if codes is None:
        return WordVocabulary(Dictionary(pieces), SEPARATOR if any(joined) else "none")
    # Pieces `x@@` and `x` of a file are `x` and `x ` in a dictionary of ours.
    written = [
        piece.removesuffix(SEPARATOR) if joins else f"{piece} "
        for piece, joins in zip(pieces, joined, strict=True)
    ]
    return SubwordNmtVocabulary(Segmenter.read(codes), Dictionary(written))


def convert(
    importer: Importer, foreign: ForeignCheckpoint, config: ModelConfig, vocabularies: Vocabularies
) -> TranslationModel:
    """Build the model of `config` and fill it from the checkpoint, in the order of our ids.

    Raises:
        ModelError: The vocabulary has another size, or names and shapes do not fit the architecture.
        UsageError: One embedding for vocabularies of different sizes.
    """
    tables = importer.embeddings(config, foreign)
    sizes = vocabularies.source.size, vocabularies.target.size
    for parameter, size in ((SOURCE, sizes[0]), (HEAD, sizes[1])):
        name, value = tables.get(parameter, ("", None))
        if value is not None and value.size(0) != size:
            raise ModelError(
                f"{foreign.path}: {name} has {value.size(0)} rows, but the vocabulary has {size} entries",
                "is it the vocabulary of this model, and complete?",
            )
    final = importer.final_config(config)
    build = partial(build_model, final, *sizes, languages=importer.languages(foreign))
    # Before memory is taken: a checkpoint cannot fill a model of many times its size.
    wanted = sum(parameter.numel() for parameter in outline(final, build).parameters())
    held = sum({id(tensor): tensor.numel() for tensor in foreign.tensors.values()}.values())
    if wanted > _MAX_COPIES * held:
        raise ModelError(
            f"{foreign.path}: holds {held:,} numbers, but the architecture has {wanted:,} parameters",
            _WHICH_ARCHITECTURE,
        )
    model = build()

    def values() -> Iterator[tuple[str, Tensor, Destinations | None]]:
        for parameter, (name, value) in tables.items():
            yield name, value, (Destination(parameter),)
        lookups = {name for names in importer.tables for name in names}
        for name, value in foreign.tensors.items():
            if name not in lookups:
                yield name, value, importer.destinations_of(name, model, foreign)

    _fill_parameters(model, foreign.path, values())
    return model.eval()


@torch.no_grad()
def _fill_parameters(
    model: TranslationModel, path: Path, values: Iterable[tuple[str, Tensor, Destinations | None]]
) -> None:
    """Fill all parameters of a model from foreign names, tensors and destinations; `path` is for errors.

    Destinations are None for an unknown name, and none for a tensor that the model does not need.
    """
    places = {**dict(model.named_buffers()), **dict(model.named_parameters(remove_duplicate=False))}
    filled = {
        id(value): torch.zeros(value.size(0) if value.dim() else 1, dtype=torch.bool)
        for value in model.parameters()
    }
    wrong: list[str] = []
    for name, value, destinations in values:
        if destinations is None or any(each.name not in places for each in destinations):
            wrong.append(f"{name} has no place")
        elif destinations and not bool(torch.isfinite(value).all()):
            raise ModelError(f"{path}: {name} is not finite", "training diverged, or the file is damaged")
        elif destinations:
            targets = [_target(each, places[each.name], filled) for each in destinations]
            if (misfit := _copy_pieces(value.to(torch.float32), targets)) is not None:
                wrong.append(f"{name} {misfit}")
    named = model.named_parameters()
    wrong += [f"{name} has no value" for name, value in named if not filled[id(value)].all()]
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ModelError(
            f"{path}: does not fit the architecture: {'; '.join(wrong[:_SHOWN])}{more}", _WHICH_ARCHITECTURE
        )


_Target = tuple[Tensor, Tensor | None]
"""A part of a parameter, and which of its rows are filled; None for those of a constant."""


def _target(destination: Destination, place: Tensor, filled: Mapping[int, Tensor]) -> _Target:
    rows = filled.get(id(place))
    if rows is None:
        return place, None
    size = len(rows) // destination.parts
    part = slice(destination.part * size, (destination.part + 1) * size)
    return place.detach()[part] if place.dim() else place.detach(), rows[part]


def _copy_pieces(value: Tensor, targets: Sequence[_Target]) -> str | None:
    """Copy a tensor, cut into pieces, to its targets; the reason where it does not fit, else None."""
    sizes = [target.size(0) if target.dim() else 1 for target, _ in targets]
    cut = len(targets) > 1 and value.dim() and value.size(0) == sum(sizes)
    pieces = torch.split(value, sizes) if cut else (value,)
    if [piece.squeeze().shape for piece in pieces] != [target.squeeze().shape for target, _ in targets]:
        shapes = " and ".join(str(list(target.shape)) for target, _ in targets)
        return f"is {list(value.shape)}, not {shapes}"
    for piece, (target, filled) in zip(pieces, targets, strict=True):
        piece = piece.reshape(target.shape)
        if filled is None:
            # Constant weights that combine layers; those above the diagonal are never used.
            used = torch.ones(piece.shape[:2]).tril().unsqueeze(-1)
            if not ((piece - target) * used).abs().max() < _CONSTANT:
                return "is learned, but the architecture has a constant there"
        elif bool(filled.any()) and not torch.equal(target, piece):
            return "differs from another tensor that the architecture ties to it"
        else:
            target.copy_(piece)
            filled.fill_(True)
    return None
