"""The contract of an importer of the checkpoints of one program, and what all of them share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from deepwire.checkpoint.importers.foreign_checkpoint import ForeignCheckpoint, read_foreign_checkpoint
from deepwire.config.yaml_tree import PlainValue
from deepwire.data.subwords.base import BOS, EOS, PAD, UNK
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

SOURCE, TARGET, HEAD = (
    "source_embedding.table.weight",
    "target_embedding.table.weight",
    "head.table.weight",
)


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

    def nested(self) -> dict[str, PlainValue]:
        """All settings as sections within sections."""
        tree: dict[str, PlainValue] = {}
        for key, value in (*self.assumed.items(), *self.known.items()):
            *sections, last = key.split(".")
            below = tree
            for section in sections:
                inner = below.setdefault(section, {})
                assert isinstance(inner, dict)  # keys of one program never name a value and a section alike
                below = inner
            below[last] = value
        return tree


class Destination(NamedTuple):
    """Where a foreign tensor, or a part of one, goes: a parameter, or one of several equal parts of it."""

    name: str
    part: int = 0
    parts: int = 1


Destinations = tuple[Destination, ...]
"""A foreign tensor is cut along its first axis; each piece goes to the next destination."""


@dataclass(frozen=True)
class Numbering:
    """Where a program keeps the four special ids, and whether its decoder starts with EOS, not BOS."""

    pad: int
    bos: int
    eos: int
    unk: int
    starts_with_end: bool

    def rows(self, size: int) -> Tensor:
        """The program's row of each of our ids, `[size]`; ordinary ones are the same."""
        rows = torch.arange(size)
        rows[[PAD, BOS, EOS, UNK]] = torch.tensor([self.pad, self.bos, self.eos, self.unk])
        return rows


def number_of_layers(foreign: ForeignCheckpoint, pattern: str) -> int:
    """How many layers a stack has.

    Args:
        foreign: The checkpoint.
        pattern: What its parameters are called; group 1 is the number of the layer, from 0.

    Raises:
        ModelError: There cannot be so many.
    """
    matches = [re.match(pattern, name) for name in foreign.tensors]
    layers = max((int(match[1]) for match in matches if match), default=-1) + 1
    if layers > len(matches):
        raise ModelError(f"{foreign.path}: has a layer {layers - 1}, but only {len(matches)} tensors")
    return layers


class Importer(ABC):
    """Checkpoints of one program.

    Attributes:
        name: What the command line calls it.
        numbering: Its special ids.
        source_bos: Whether its sources begin with BOS.
        tables: Names under which it may keep the source embedding, the target embedding and the output
            projection; of each, the first that is there.
    """

    name: ClassVar[str]
    numbering: ClassVar[Numbering]
    source_bos: ClassVar[bool]
    tables: ClassVar[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]

    def read(self, path: Path) -> ForeignCheckpoint:
        """Read a checkpoint; nothing in it is run.

        Raises:
            ModelError: See `read_foreign_checkpoint`.
        """
        return read_foreign_checkpoint(path)

    def own_vocabularies(self, foreign: ForeignCheckpoint) -> Vocabularies | None:  # noqa: ARG002
        """The vocabularies that lie beside the checkpoint; None where they are named by `VocabularyFiles`."""
        return None

    @abstractmethod
    def architecture(self, foreign: ForeignCheckpoint) -> Architecture:
        """The architecture of the checkpoint.

        Raises:
            ModelError: It is of a kind that cannot be expressed here, or of none that is known.
        """

    @abstractmethod
    def ignores(self, name: str) -> bool:
        """Whether a tensor is no parameter: a buffer that can be computed again."""

    @abstractmethod
    def destinations_of(
        self, name: str, model: TranslationModel, foreign: ForeignCheckpoint
    ) -> Destinations | None:
        """Where a tensor goes; None for an unknown name. Embeddings are not asked for."""

    def languages(self, foreign: ForeignCheckpoint) -> int:  # noqa: ARG002
        """How many target languages have parameters of their own; 0 in a model of one language pair."""
        return 0

    def with_language_order(self, foreign: ForeignCheckpoint, order: Sequence[int]) -> ForeignCheckpoint:  # noqa: ARG002
        """The checkpoint with its languages in another order: the first is number `order[0]` there."""
        return foreign

    @abstractmethod
    def read_pieces(self, path: Path) -> list[str]:
        """The ordinary pieces of a vocabulary file, in the order of their ids from 4.

        Raises:
            DataError: It is missing, or is no such file.
        """

    @abstractmethod
    def vocabulary_files(self, folder: Path, source: str, target: str) -> tuple[Path, Path]:
        """The vocabulary files of both languages in a folder, one file twice where they share it."""

    def final_config(self, config: ModelConfig) -> ModelConfig:
        """The architecture with the symbol that this program's decoder starts with."""
        if not self.numbering.starts_with_end:
            return config
        return config.model_copy(update={"embeddings": config.embeddings.model_copy(update={"start": "eos"})})

    def embeddings(self, config: ModelConfig, foreign: ForeignCheckpoint) -> dict[str, tuple[str, Tensor]]:
        """Values of the three tables in the order of our ids, by parameter, each with the foreign name.

        Args:
            config: What the checkpoint was trained with.
            foreign: The checkpoint.
        """
        chosen = [next((name for name in names if name in foreign.tensors), None) for names in self.tables]
        tie = config.embeddings.tie
        if tie in ("all", "inputs") and chosen[1] is None:
            chosen[1] = chosen[0]
        if tie in ("all", "output") and chosen[2] is None:
            chosen[2] = chosen[1]
        values = {}
        for parameter, name in zip((SOURCE, TARGET, HEAD), chosen, strict=True):
            if name is not None:
                table = foreign.tensors[name]
                values[parameter] = (name, table[self.numbering.rows(table.size(0))])
        return values
