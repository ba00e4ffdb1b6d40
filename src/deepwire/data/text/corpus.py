"""The corpora of a run file: as pairs of languages, and read pair by pair or by blocks of lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path

from deepwire.data.data_config import STDIN, CorpusConfig, DataConfig, Role, serves
from deepwire.data.languages import Direction
from deepwire.data.text.files import (
    MissingTextError,
    ReadNotes,
    existing_text,
    find_text,
    read_bytes,
)
from deepwire.data.text.pairs import Pair
from deepwire.data.text.reader import JsonReader, Reader, TextReader, TsvReader

PAIR = "{pair}"
"""Stands in a prefix for the two languages, as `de-en` or `en-de`."""

_OPUS100_SPLITS: dict[Role, str] = {"train": "train", "valid": "dev", "test": "test"}
_OPUS100_VERSION = "v1.0"


def directed(data: DataConfig, role: Role) -> list[CorpusConfig]:
    """The corpora of a role, each of two languages that its `source` and `target` name.

    A run with `source` and `target` gets its corpora as they are, but a test text with several references
    once for each. In a run with directions a corpus comes once for each direction that it serves, in their
    order, with its sides turned where it was written the other way round.
    """
    corpora, languages = data.corpora().get(role, []), data.languages
    if languages is None:
        if data.text is not None or role != "test":
            return corpora
        return [part for corpus in corpora for part in by_reference(corpus, data)]
    return [
        turned
        for corpus in corpora
        for direction in languages.directions
        if serves(corpus, direction) and (turned := _turned(corpus, direction, role)) is not None
    ]


def directions_of(corpora: Sequence[CorpusConfig], data: DataConfig) -> list[int] | None:
    """The place of the direction of each directed corpus among all directions; None with one direction."""
    if data.languages is None:
        return None
    places = {direction: place for place, direction in enumerate(data.languages.directions)}
    return [places[Direction(str(corpus.source), str(corpus.target))] for corpus in corpora]


def _prefix_of(prefix: Path, direction: Direction) -> Path:
    """A prefix with `{pair}` filled in: `SRC-TGT` or `TGT-SRC`, whichever there is text under."""
    if PAIR not in str(prefix):
        return prefix
    names = (f"{direction.source}-{direction.target}", f"{direction.target}-{direction.source}")
    candidates = [Path(str(prefix).replace(PAIR, name)) for name in names]
    return next((candidate for candidate in candidates if _has_text(candidate, direction)), candidates[0])


def _has_text(prefix: Path, direction: Direction) -> bool:
    return any(existing_text(prefix, language) for language in direction)


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
        prefix = _prefix_of(folder / kind / PAIR / f"opus.{PAIR}-{split}", direction)
        if _has_text(prefix, direction):
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
        if prefix is None and role != "train":
            return None
        pair = "-".join(sorted(direction))
        prefix = prefix or corpus.opus100 / "supervised" / pair / f"opus.{pair}-train"
        changes |= {"opus100": None, "prefix": prefix}
    elif corpus.source == direction.target:
        columns = corpus.source_column, corpus.target_column
        if corpus.tsv is not None:
            columns = columns[0] or 1, columns[1] or 2
        changes |= {"source_file": corpus.target_file, "target_file": corpus.source_file}
        changes |= {"source_column": columns[1], "target_column": columns[0]}
    return corpus.model_copy(update=changes)


def by_reference(corpus: CorpusConfig, data: DataConfig) -> list[CorpusConfig]:
    """A test corpus of a run with one direction, once for each of its references.

    With a prefix these are `PREFIX.en`, or where there is none `PREFIX.en.0`, `PREFIX.en.1` and so on (or
    from 1), each also compressed; then those of `more_references`. A DataError where there are none.
    """
    if corpus.prefix is None:
        source, first = corpus.source_file, [] if corpus.target_file is None else [corpus.target_file]
    else:
        source, first = find_text(corpus.prefix, data.source), _of_prefix(corpus.prefix, data.target)
    targets = [*first, *corpus.more_references]
    if len(targets) < 2 and (corpus.prefix is None or existing_text(corpus.prefix, data.target)):
        return [corpus]
    whole: dict[str, object] = {"prefix": None, "source_file": source, "more_references": []}
    return [corpus.model_copy(update={**whole, "target_file": path, "name": path.name}) for path in targets]


def _of_prefix(prefix: Path, language: str) -> list[Path]:
    if existing_text(prefix, language) is None:
        for first in (0, 1):
            paths = (existing_text(prefix, f"{language}.{number}") for number in count(first))
            if numbered := [path for path in takewhile(bool, paths) if path]:
                return numbered
    return [find_text(prefix, language)]


def read_pairs(
    corpus: CorpusConfig, data: DataConfig, *, index: int = 0, notes: ReadNotes | None = None
) -> Iterator[Pair]:
    """Every pair of a corpus in order, unfiltered: one for each line, in constant memory.

    Args:
        corpus: A corpus; in a run with directions one of those that `directed` gives.
        data: The languages and what to do with lines that are not UTF-8.
        index: The number of the corpus, handed on in `Pair.corpus`.
        notes: Counts what was repaired while reading.

    Raises:
        DataError: a file is missing, empty or damaged; the line counts of the two sides differ (known only at
            the end); a line is not UTF-8 (and `on_bad_utf8` is `error`), or lacks a column or key.
    """
    source, notes = reader(corpus, data, index), notes if notes is not None else ReadNotes()
    for block in source.blocks():
        lines = source.parse(block, notes)
        for place, (left, right) in enumerate(zip(lines.sources, lines.targets, strict=True)):
            yield Pair(lines.first + place, left, right, block.corpus, lines.faults.get(place, ""))


def reader(corpus: CorpusConfig, data: DataConfig, index: int) -> Reader:
    """The reader of a corpus; a DataError where a side of a prefix does not exist."""
    on_bad = data.on_bad_utf8
    source, target = corpus.source or data.source, corpus.target or data.target
    if corpus.jsonl is not None and data.text is not None:
        key = str(corpus.target_column or (data.target if data.names_target else "text"))
        return JsonReader(corpus.jsonl, (None, key), index, on_bad)
    if corpus.jsonl is not None:
        keys = (str(corpus.source_column or source), str(corpus.target_column or target))
        return JsonReader(corpus.jsonl, keys, index, on_bad)
    if corpus.tsv is not None:
        columns = (corpus.source_column or 1, corpus.target_column or 2)
        return TsvReader(corpus.tsv, columns, index, on_bad)
    return (Reader if data.text is None else TextReader)(corpus_files(corpus, data), index, on_bad)


def corpus_files(corpus: CorpusConfig, data: DataConfig) -> list[Path]:
    """The files of a corpus: source and target, or the one TSV or JSONL file or text of one side.

    Raises:
        DataError: a side of a prefix does not exist.
    """
    if corpus.prefix is None:
        return [path for path in (corpus.source_file, corpus.target_file, corpus.tsv, corpus.jsonl) if path]
    if data.text is not None:
        return [find_text(corpus.prefix, data.target) if data.names_target else corpus.prefix]
    if corpus.source is None or corpus.target is None:
        return [find_text(corpus.prefix, data.source), find_text(corpus.prefix, data.target)]
    direction = Direction(corpus.source, corpus.target)
    prefix = _prefix_of(corpus.prefix, direction)
    try:
        return [find_text(prefix, language) for language in direction]
    except MissingTextError as fault:
        hint = "a corpus that is not for all directions names its own: directions: [...]"
        hint = f"{fault.hint}; {hint}" if fault.hint else hint
        raise MissingTextError(f"{fault.message}, needed for {direction}", hint) from None


def require_files(data: DataConfig, role: Role) -> None:
    """Raises a DataError where a file of a role cannot be read; a pipe is left alone."""
    for corpus in directed(data, role):
        for path in corpus_files(corpus, data):
            if path != STDIN and not os.access(path, os.R_OK):
                next(read_bytes(path), b"")  # says what is wrong with it


_OF_A_RECIPE = (
    "a recipe looks for its text below the current folder (demo: that of the repository); "
    "change to it, or name your own text with data.train=PREFIX and data.valid=PREFIX"
)


@contextmanager
def hinting_at_recipes(origins: Mapping[str, str]) -> Iterator[None]:
    """Says of a missing text that a recipe names where recipes look for theirs.

    Args:
        origins: Where each setting was written, by dotted key.
    """
    try:
        yield
    except MissingTextError as error:
        named = [origin for key, origin in origins.items() if key.startswith(("data.train", "data.valid"))]
        if any(origin.startswith("recipe ") for origin in named):
            error.hint = _OF_A_RECIPE
        raise
