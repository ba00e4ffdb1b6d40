"""Corpora as pairs of languages: of each direction, of OPUS-100, and of each reference of a test text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, takewhile
from pathlib import Path

from deepwire.data.data_config import CorpusConfig, DataConfig, Role, serves
from deepwire.data.languages import Direction
from deepwire.data.text.files import find_text, text_exists

PAIR = "{pair}"
"""Stands in a prefix for the two languages, as `de-en` or `en-de`."""

_OPUS100_SPLITS: dict[Role, str] = {"train": "train", "valid": "dev", "test": "test"}
_OPUS100_VERSION = "v1.0"


def directed(data: DataConfig, role: Role) -> list[CorpusConfig]:
    """The corpora of a role, each of two languages that `source` and `target` of it name.

    A run with `source` and `target` gets its corpora as they are, none where the role has none; of test text
    with several references one for each. In a run with
    directions a corpus comes once for each direction that it serves, in their order, with its sides turned
    where it was written the other way round.
    """
    corpora, languages = data.corpora().get(role, []), data.languages
    if languages is None:
        return (
            corpora if role != "test" else [own for corpus in corpora for own in by_reference(corpus, data)]
        )
    return [
        turned
        for corpus in corpora
        for direction in languages.directions
        if serves(corpus, direction) and (turned := _turned(corpus, direction, role)) is not None
    ]


def directions_of(corpora: Sequence[CorpusConfig], data: DataConfig) -> list[int] | None:
    """Of each of these directed corpora the place of its direction among all; None with one direction."""
    if data.languages is None:
        return None
    places = {direction: place for place, direction in enumerate(data.languages.directions)}
    return [places[Direction(str(corpus.source), str(corpus.target))] for corpus in corpora]


def prefix_of(prefix: Path, direction: Direction) -> Path:
    """A prefix with `{pair}` filled in: `SRC-TGT` or `TGT-SRC`, whichever there is text under."""
    if PAIR not in str(prefix):
        return prefix
    names = (f"{direction.source}-{direction.target}", f"{direction.target}-{direction.source}")
    candidates = [Path(str(prefix).replace(PAIR, name)) for name in names]
    existing = (
        candidate
        for candidate in candidates
        if any(text_exists(candidate, language) for language in direction)
    )
    return next(existing, candidates[0])


def opus100_prefix(folder: Path, direction: Direction, split: str) -> Path | None:
    """Where OPUS-100 as published has a text of a direction; None where it has none.

    Args:
        folder: The folder with `supervised` and `zero-shot` in it, or the one above, with `v1.0`.
        direction: Either order; OPUS-100 names its pairs in alphabetical order.
        split: `train`, `dev` or `test`; five languages have only `train`, zero-shot pairs only `test`.
    """
    if not (folder / "supervised").is_dir() and (folder / _OPUS100_VERSION).is_dir():
        folder = folder / _OPUS100_VERSION
    for kind in ("supervised", "zero-shot"):
        prefix = prefix_of(folder / kind / PAIR / f"opus.{PAIR}-{split}", direction)
        if any(text_exists(prefix, language) for language in direction):
            return prefix
    return None


def _turned(corpus: CorpusConfig, direction: Direction, role: Role) -> CorpusConfig | None:
    """A corpus read in one direction; None where OPUS-100 has no such validation or test text."""
    changes: dict[str, object] = {
        "source": direction.source,
        "target": direction.target,
        "languages": None,
        "directions": None,
        "name": f"{corpus.label}.{direction}",
    }
    if corpus.opus100 is not None:
        prefix = opus100_prefix(corpus.opus100, direction, _OPUS100_SPLITS[role])
        if prefix is None:
            if role != "train":
                return None
            pair = "-".join(sorted(direction))
            prefix = corpus.opus100 / "supervised" / pair / f"opus.{pair}-train"
        changes |= {"opus100": None, "prefix": prefix}
    elif corpus.source == direction.target:
        changes |= {"source_file": corpus.target_file, "target_file": corpus.source_file}
        if corpus.tsv is not None or corpus.source_column is not None or corpus.target_column is not None:
            changes |= _turned_columns(corpus)
    return corpus.model_copy(update=changes)


def _turned_columns(corpus: CorpusConfig) -> dict[str, object]:
    if corpus.tsv is not None:
        return {"source_column": corpus.target_column or 2, "target_column": corpus.source_column or 1}
    return {"source_column": corpus.target_column, "target_column": corpus.source_column}


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
