"""Test text with several references: each is read as a corpus of its own, with the same source."""

from __future__ import annotations

from itertools import count, takewhile
from pathlib import Path

from deepwire.data.data_config import CorpusConfig, DataConfig
from deepwire.data.text.files import find_text, text_exists


def by_reference(corpus: CorpusConfig, data: DataConfig) -> list[CorpusConfig]:
    """A test corpus of a run with one direction, once for each of its references.

    With a prefix these are `PREFIX.en`, or where there is none `PREFIX.en.0`, `PREFIX.en.1` and so on (or
    from 1), each also compressed; then those of `more_references`.

    Raises:
        DataError: a side of a prefix does not exist.
    """
    if corpus.prefix is None:
        source, first = corpus.source_file, [] if corpus.target_file is None else [corpus.target_file]
    else:
        source, first = find_text(corpus.prefix, data.source), _of_prefix(corpus.prefix, data.target)
    targets = [*first, *corpus.more_references]
    if len(targets) < 2:
        return [corpus]
    return [
        corpus.model_copy(
            update={
                "prefix": None,
                "source_file": source,
                "target_file": target,
                "more_references": [],
                "name": target.name,
            }
        )
        for target in targets
    ]


def _of_prefix(prefix: Path, language: str) -> list[Path]:
    if not text_exists(prefix, language):
        for first in (0, 1):
            endings = (f"{language}.{number}" for number in count(first))
            numbered = list(takewhile(lambda ending: text_exists(prefix, ending), endings))
            if numbered:
                return [find_text(prefix, ending) for ending in numbered]
    return [find_text(prefix, language)]
