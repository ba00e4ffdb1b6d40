"""Making a prepared corpus: text files to vocabularies and token stores in an empty folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from typing_extensions import TypedDict

from deepwire.data.batches.token_store import StoreWriter
from deepwire.data.data_config import DataConfig
from deepwire.data.filtering.block_filter import Sifted
from deepwire.data.filtering.filters import NUMBERS
from deepwire.data.filtering.selection import Selection
from deepwire.data.prepare.balancing import balanced_lines
from deepwire.data.prepare.segmentation import segment
from deepwire.data.prepare.staging import Staging
from deepwire.data.text.directed import directed
from deepwire.data.text.pairs import PairBlock
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig, UnigramConfig

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how many pairs are done, and of how many, where that is known."""

VOCABULARY, TRAIN, VALID = "vocabulary", "train", "valid"


class CorpusPlace(TypedDict):
    """Which pairs of the store are those of a corpus."""

    name: str
    start: int
    stop: int


class Builder:
    """Makes one prepared corpus in a folder.

    Args:
        data: The data section, without streams.
        folder: Where to; empty.
        seed: Chooses the pairs that the report shows.
        tell: Hears how far it is.
    """

    def __init__(self, data: DataConfig, folder: Path, seed: int, tell: Progress) -> None:
        self._data, self._folder, self._tell = data, folder, tell
        self._training = Selection("train", directed(data, "train"), data, seed=seed)
        self._valid = Selection("valid", directed(data, "valid"), data, seed=seed)

    def build(self) -> tuple[list[CorpusPlace], dict[str, object]]:
        """Everything but the header and the report; returns the corpora and the reports, which go into these.

        Raises:
            DataError: the text cannot be read or used, or does not support the vocabulary.
        """
        staging = Staging(self._folder / "train.staged")
        with staging:
            vocabularies = self._learn(staging)
        vocabularies.save(self._folder / VOCABULARY)
        counts = self._segment(staging, self._training, vocabularies, self._data.filters.max_length)
        self._training.require_some()
        reports = [self._training.reports()]
        if self._data.valid is not None:
            staging = Staging(self._folder / "valid.staged")
            with staging:
                for block in self._stage(self._valid, staging):
                    self._valid.count_seen(block, self._training)
            self._segment(staging, self._valid, vocabularies, None)
            self._valid.require_some()
            reports.append(self._valid.reports())
        ends = [sum(counts[: number + 1]) for number in range(len(counts))]
        corpora: list[CorpusPlace] = [
            {"name": corpus.label, "start": end - count, "stop": end}
            for corpus, count, end in zip(self._training.corpora, counts, ends, strict=True)
        ]
        return corpora, {name: report.to_dict() for named in reports for name, report in named.items()}

    def _stage(self, selection: Selection, staging: Staging) -> Iterator[Sifted]:
        """Read and filter; pass on and stage what is kept."""
        for block in selection.read(tell=lambda read: self._tell("reading pairs", read, None)):
            staging.add(block.pairs)
            yield block

    def _learn(self, staging: Staging) -> Vocabularies:
        config, languages = self._data.vocabulary, self._data.languages
        if languages is None or not isinstance(config, BpeConfig | UnigramConfig):
            return Vocabularies.learn_from_blocks(config, self._staged(staging))
        for _ in self._staged(staging):
            pass
        staging.flush()
        sides = [languages.indices[direction] for direction in self._training.directions]
        lines = balanced_lines(
            staging.path,
            staging.chunks,
            sides,
            temperature=config.balance_temperature,
            most=2 * config.max_training_sentences,
        )
        return Vocabularies.learn_joint(config, lines)

    def _staged(self, staging: Staging) -> Iterator[PairBlock]:
        """Stage the training pairs, and say when all are there."""
        count = 0
        for block in self._stage(self._training, staging):
            count += len(block.pairs)
            yield block.pairs
        if count == 0:
            self._training.require_some()  # before the vocabulary complains about what it cannot know
        self._tell("learning the vocabulary", count, None)

    def _segment(
        self, staging: Staging, selection: Selection, vocabularies: Vocabularies, max_length: int | None
    ) -> list[int]:
        """Write a store; returns how many pairs of each corpus are in it."""
        total = sum(chunk.pairs for chunk in staging.chunks)
        counts, done = [0] * len(selection.corpora), 0
        sizes = vocabularies.source.size, vocabularies.target.size
        many, lines = self._data.languages is not None, selection.role == TRAIN
        with StoreWriter(self._folder / selection.role, *sizes, directions=many, lines=lines) as store:
            for result in segment(staging.path, staging.chunks, self._folder / VOCABULARY, max_length):
                pairs = result.pairs
                store.add(*result.blocks(), selection.directions[pairs.corpus], pairs.numbers)
                selection.keep(pairs, result.lengths)
                too_long = np.full(len(result.too_long), NUMBERS["too_long"], np.uint8)
                selection.drop(pairs.corpus, result.too_long, too_long)
                counts[pairs.corpus] += len(pairs)
                done += len(pairs) + len(too_long)
                self._tell("segmenting", done, total)
            store.finish()
        staging.path.unlink()
        return counts
