"""Learning a shortlist from prepared text, or from text files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from deepwire.data.batches.token_store import StoreWriter, TokenBlock, TokenStore
from deepwire.data.languages import Languages
from deepwire.data.vocabulary import PAD, UNK, Vocabularies
from deepwire.decoding.shortlist import Shortlist, ShortlistTable
from deepwire.errors import DataError, UsageError
from deepwire.lab.experiments.shortlist_learning.ibm_model1 import Progress, train_ibm_model1
from deepwire.lab.experiments.shortlist_learning.lexical_table import build_table
from deepwire.lab.experiments.shortlist_learning.training_pairs import TrainingPairs

_LINES_PER_BLOCK = 4096
_LINES_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class LearningSettings:
    """How a shortlist is learned.

    Attributes:
        best: Most target subwords of a source subword.
        first: How many of the most frequent target subwords are always in it.
        pairs: Most sentence pairs to learn from, for each target language.
        rounds: Passes of EM over them.
    """

    best: int = 100
    first: int = 1000
    pairs: int = 1_000_000
    rounds: int = 4


def learn_shortlist(
    store: TokenStore,
    vocabularies: Vocabularies,
    into: Mapping[str, Sequence[int] | None],
    settings: LearningSettings,
    tell: Progress,
) -> Shortlist:
    """A shortlist with a table for each target language.

    Args:
        store: The text.
        vocabularies: Whose subwords it is made of.
        into: Target languages (one without a name in a model of one direction) and the numbers of their
            directions in the store; None = all of it.
        settings: How to learn.
        tell: Receives the progress.

    Raises:
        DataError: There is no pair to learn from.
    """
    tables: dict[str, ShortlistTable] = {}
    made_from: dict[str, dict[str, object]] = {}
    for language, directions in into.items():
        pairs = TrainingPairs.of(store, settings.pairs, directions)
        if not len(pairs):
            raise DataError(
                f"there is no sentence pair to learn a shortlist from{f' into {language}' * bool(language)}"
            )
        tables[language] = _learn_table(pairs, vocabularies, settings, tell)
        made_from[language] = {"pairs": len(pairs), "best": settings.best, "first": settings.first}
    return Shortlist(tables, vocabularies.digest, made_from)


def learn_seen_shortlist(
    store: TokenStore,
    vocabularies: Vocabularies,
    into: Mapping[str, Sequence[int] | None],
    tell: Progress,
) -> Shortlist:
    """A shortlist of all target subwords that the text of a language has, whatever the source.

    Arguments and errors are those of `learn_shortlist`.
    """
    size = vocabularies.target.size
    seen, lines = _seen_subwords(store, size, tell)
    tables: dict[str, ShortlistTable] = {}
    made_from: dict[str, dict[str, object]] = {}
    for language, directions in into.items():
        rows = [row for row in range(len(lines)) if directions is None or row in directions]
        if not lines[rows].sum():
            raise DataError(f"there is no text to find subwords in{f' in {language}' * bool(language)}")
        marks = seen[rows].any(0) | (np.arange(size) <= UNK)
        tables[language] = ShortlistTable.of_all(torch.from_numpy(marks.nonzero()[0]), size)
        made_from[language] = {"lines": int(lines[rows].sum())}
    return Shortlist(tables, vocabularies.digest, made_from)


def _seen_subwords(
    store: TokenStore, size: int, tell: Progress
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which target subwords the text of each direction has, `[D, V_t]`, and its lines, `[D]`."""
    count = 1 if store.directions is None or not len(store) else int(store.directions[:].max()) + 1
    seen, lines = np.zeros((count, size), bool), np.zeros(count, np.int64)
    for first in range(0, len(store), _LINES_AT_ONCE):
        block = np.arange(first, min(first + _LINES_AT_ONCE, len(store)))
        read = store.target_side.take(block)
        directions = np.zeros(len(block), np.int64) if store.directions is None else store.directions[block]
        seen[np.repeat(directions, read.lengths), read.tokens] = True
        lines += np.bincount(directions, minlength=count)
        tell("reading", int(block[-1]) + 1, len(store))
    return seen, lines


def directions_into(languages: Languages | None, to: str | None) -> dict[str, Sequence[int] | None]:
    """The target languages of a model and the numbers of their directions, as `learn_shortlist` wants them.

    Args:
        languages: Those of the model; None with one direction.
        to: The only one that is wanted; None = all.

    Raises:
        UsageError: The model does not know that language, or has one direction only.
    """
    if languages is None:
        if to is not None:
            raise UsageError("the model has one direction only", "leave out --to")
        return {"": None}
    if to is not None:
        languages.target(to)
    return {
        name: [number for number, direction in enumerate(languages.directions) if direction.target == name]
        for name in languages.targets
        if to in (None, name)
    }


def _learn_table(
    pairs: TrainingPairs, vocabularies: Vocabularies, settings: LearningSettings, tell: Progress
) -> ShortlistTable:
    sizes = vocabularies.source.size, vocabularies.target.size
    probabilities = train_ibm_model1(pairs, sizes, rounds=settings.rounds, tell=tell)
    counts = np.zeros(sizes[1], np.int64)
    for block in pairs.blocks():
        counts += np.bincount(block.target[block.target != PAD], minlength=sizes[1])
    return build_table(probabilities, counts, vocabularies, best=settings.best, first=settings.first)


@contextmanager
def tokenized_store(text: Iterable[tuple[str, str]], vocabularies: Vocabularies) -> Iterator[TokenStore]:
    """Raw sentence pairs as a token store, which is gone after the block; in constant memory."""
    reader = iter(text)
    with tempfile.TemporaryDirectory(prefix="deepwire-shortlist-") as temporary:
        folder = Path(temporary) / "pairs"
        with StoreWriter(folder, vocabularies.source.size, vocabularies.target.size) as writer:
            while read := list(islice(reader, _LINES_PER_BLOCK)):
                source, target = zip(*read, strict=True)
                empty = [""] * len(read)
                writer.add(
                    TokenBlock.of(vocabularies.source.encode_lines(source), empty),
                    TokenBlock.of(vocabularies.target.encode_lines(target), empty),
                )
            writer.finish()
        yield TokenStore(folder)
