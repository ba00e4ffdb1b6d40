"""Shortlists: the target subwords that the source of a batch may need, and the folder that stores them.

``shortlist.safetensors`` (for each target language ``always``, ``offsets``, ``targets``), ``shortlist.json``
and ``manifest.json``. That of a run lies in the run directory, for all its checkpoints and averages; that of
a model directory elsewhere lies in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from deepwire.checkpoint.model_files import (
    DamagedError,
    check_manifest,
    read_tensors,
    write_manifest,
    write_tensors,
)
from deepwire.config.counts import shown
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError, UsageError
from deepwire.io.atomic import json_text, new_folder
from deepwire.io.regular_files import read_json


@dataclass(frozen=True)
class ShortlistTable:
    """Target subwords of each source subword, for one target language.

    Attributes:
        always: `[k]` what is part of every shortlist: special subwords, bytes, the most frequent subwords.
        offsets: `[V_s + 1]` where the subwords of each source subword begin in `targets`; of source subwords
            after these there are none.
        targets: `[n]` target subwords, those of source subword 0 first.
        size: Entries of the target vocabulary.
    """

    always: Tensor
    offsets: Tensor
    targets: Tensor
    size: int

    @classmethod
    def of_all(cls, always: Tensor, size: int) -> ShortlistTable:
        """The table of subwords that every text may need, and of no others."""
        return cls(always, torch.zeros(2, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), size)

    def mark(self, source: Tensor, marks: Tensor) -> None:
        """Set in `marks` `[size]` the target subwords of the source subwords `[...]`; tags have none."""
        present = torch.zeros(len(self.offsets) - 1, dtype=torch.bool)
        present[source[source < len(present)]] = True
        ids = present.nonzero().squeeze(1)
        starts, counts = self.offsets[ids], self.offsets[ids + 1] - self.offsets[ids]
        first = torch.repeat_interleave(starts - (counts.cumsum(0) - counts), counts)
        marks[self.targets[first + torch.arange(len(first))]] = True
        marks[self.always] = True


class LanguageRows(NamedTuple):
    """The sentences of a batch that have the same target language."""

    language_id: int
    """Its number; 0 with a model of one direction."""
    table: ShortlistTable
    source: Tensor
    """`[N, S]` source subwords."""
    prefixes: Sequence[Sequence[int]] = ()
    """Beginnings of their translations; all of it is in the shortlist."""

    def marks(self) -> Tensor:
        """`[V_t]`: which target subwords they are translated with."""
        marks = torch.zeros(self.table.size, dtype=torch.bool)
        self.table.mark(self.source, marks)
        for prefix in self.prefixes:
            marks[list(prefix)] = True
        return marks


class BatchShortlist(NamedTuple):
    """The shortlist of a batch."""

    tokens: Tensor
    """`[k]` ascending: it begins with PAD, BOS, EOS and UNK."""
    allowed: Tensor | None
    """`[L, k]`: which of them each target language may have; None: all have the same."""

    def to(self, device: torch.device) -> BatchShortlist:
        """The same on a device."""
        return BatchShortlist(
            self.tokens.to(device), None if self.allowed is None else self.allowed.to(device)
        )


def batch_shortlist(parts: Sequence[LanguageRows], languages: int = 1) -> BatchShortlist:
    """The shortlist of a batch of one language or several; `languages` is how many the model has."""
    marks = torch.stack([part.marks() for part in parts])
    tokens = marks.any(0).nonzero().squeeze(1)
    of_languages = marks[:, tokens]
    if bool(of_languages.all()):
        return BatchShortlist(tokens, None)
    allowed = torch.ones(languages, len(tokens), dtype=torch.bool)
    allowed[[part.language_id for part in parts]] = of_languages
    return BatchShortlist(tokens, allowed)


TABLES, RECORD = "shortlist.safetensors", "shortlist.json"
SHORTLIST, SEEN = "shortlist", "seen"
_FORMAT = 1
_AGAIN = "learn it again with deepwire shortlist"
_PARTS = ("always", "offsets", "targets")
ShortlistChoice = bool | str | Path
"""Whether to use the shortlist that is stored with the model; SEEN: that of the subwords which were seen in
training text; or the folder of another one."""


@dataclass(frozen=True)
class Shortlist:
    """Tables of target subwords.

    Attributes:
        tables: By target language; that of a model with one direction has the empty name.
        vocabulary: Digest of the vocabularies whose numbers these are.
        made_from: What to tell people of each table.
    """

    tables: Mapping[str, ShortlistTable]
    vocabulary: str
    made_from: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def table(self, language: str) -> ShortlistTable:
        """The table of a target language."""
        if language not in self.tables:
            known = ", ".join(self.tables)
            raise UsageError(
                f"the shortlist has no subwords of {language or 'a model with one direction'}",
                f"it has those of {known or 'a model with one direction'}; deepwire shortlist learns others",
            )
        return self.tables[language]

    def joined(self, other: Shortlist) -> Shortlist:
        """With the tables of another one of the same vocabulary, which win."""
        return replace(
            self, tables={**self.tables, **other.tables}, made_from={**self.made_from, **other.made_from}
        )

    def save(self, folder: Path) -> None:
        """Write everything in one step; a shortlist that is already there is replaced."""
        tensors = {
            f"{language}.{part}": getattr(table, part)
            for language, table in self.tables.items()
            for part in _PARTS
        }
        record = {
            "format": _FORMAT,
            "vocabulary": self.vocabulary,
            "tables": {language: dict(self.made_from.get(language, {})) for language in self.tables},
        }
        with new_folder(folder) as temporary:
            write_tensors(temporary / TABLES, tensors)
            (temporary / RECORD).write_text(json_text(record), encoding="utf-8")
            write_manifest(temporary)

    @classmethod
    def load(cls, folder: Path, vocabularies: Vocabularies) -> Shortlist:
        """Read what `save` wrote.

        Raises:
            ModelError: It is damaged, or of another vocabulary.
            UsageError: There is none.
        """
        if not (folder / RECORD).is_file():
            raise UsageError(f"{folder}: no shortlist is there", "make one with deepwire shortlist")
        try:
            check_manifest(folder, required=(TABLES, RECORD))
        except DamagedError as error:
            raise ModelError(
                f"{folder}: damaged ({error.reason})", "delete it, and learn it again with deepwire shortlist"
            ) from None
        record = read_json(folder / RECORD)
        if record.get("vocabulary") != vocabularies.digest:
            raise ModelError(
                f"{folder}: the shortlist was learned for another vocabulary",
                "learn it for this model with deepwire shortlist",
            )
        made_from, tensors = record.get("tables"), read_tensors(folder / TABLES, torch.device("cpu"))
        if record.get("format") != _FORMAT or not isinstance(made_from, dict):
            raise ModelError(f"{folder}: written by another version of deepwire", _AGAIN)
        try:
            size = vocabularies.target.size
            tables = {
                str(name): ShortlistTable(**{part: tensors[f"{name}.{part}"] for part in _PARTS}, size=size)
                for name in made_from
            }
        except KeyError as error:
            raise ModelError(f"{folder / TABLES}: {error}", _AGAIN) from None
        return cls(tables, vocabularies.digest, made_from)


def check_shortlist_path(folder: Path) -> None:
    """See, before anything is learned, that a shortlist can be saved there and replaces nothing else."""
    is_shortlist = folder.is_dir() and ((folder / RECORD).is_file() or not any(folder.iterdir()))
    if folder.exists() and not is_shortlist:
        raise UsageError(f"{folder}: exists, and is no shortlist", "name another folder with --output")


def shortlist_path(model: Path, name: str = SHORTLIST) -> Path:
    """The folder of the shortlist of a model directory, whether it exists or not; `name` may be SEEN."""
    in_run = model.parent.name in ("checkpoints", "averages")
    return (model.parent.parent if in_run else model) / name


def load_shortlist(choice: ShortlistChoice, model: Path, vocabularies: Vocabularies) -> Shortlist:
    """The shortlist that was chosen for a model directory, which is not False."""
    if not isinstance(choice, bool | str | os.PathLike):
        raise UsageError(f"shortlist: must be True, False, {SEEN!r} or a folder, not {shown(choice)}")
    if isinstance(choice, bool) or choice == SEEN:
        folder = shortlist_path(model, SEEN if choice == SEEN else SHORTLIST)
    else:
        folder = Path(choice)
    return Shortlist.load(folder, vocabularies)
