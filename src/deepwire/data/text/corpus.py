"""The corpora of a run file: as pairs of languages, and read pair by pair or by blocks of lines.

One process cuts blocks of whole lines of files, TSV or JSONL, and any process parses them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, takewhile
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from deepwire.config.counts import counted
from deepwire.data.data_config import STDIN, BadUtf8, CorpusConfig, DataConfig, Role, serves
from deepwire.data.languages import Direction
from deepwire.data.text.files import (
    CHUNK,
    BadLine,
    Decoder,
    Line,
    MissingTextError,
    Raw,
    ReadNotes,
    display,
    existing_text,
    find_text,
    read_bytes,
    read_raw,
)
from deepwire.data.text.pairs import Pair, PairBlock, Texts, is_blank, joined, without_surrogates
from deepwire.errors import DataError
from deepwire.io.json_lines import unique_keys

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


def _opus100_prefix(folder: Path, direction: Direction, split: str) -> Path | None:
    """Where OPUS-100 as published, or the folder above it with `v1.0`, has a text; None where it has none."""
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
        prefix = _opus100_prefix(corpus.opus100, direction, _OPUS100_SPLITS[role])
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


def read_pairs(corpus: CorpusConfig, data: DataConfig) -> Iterator[Pair]:
    """Every pair of a corpus in order, unfiltered: one for each line, in constant memory.

    In a run with directions the corpus is one of those that `directed` gives.

    Raises:
        DataError: a file is missing, empty or damaged; the line counts of the two sides differ (known only at
            the end); a line is not UTF-8 (and `on_bad_utf8` is `error`), or lacks a column or key.
    """
    source = reader(corpus, data, 0)
    for block in source.blocks():
        lines = source.parse(block, ReadNotes())
        for place, (left, right) in enumerate(zip(lines.sources, lines.targets, strict=True)):
            yield Pair(lines.first + place, left, right, 0, lines.faults.get(place, ""))


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
    return Reader(corpus_files(corpus, data), index, on_bad)


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


class Layout(NamedTuple):
    """How many columns a table has (0: not known yet), and which are those of the sides, from 0."""

    width: int = 0
    source: int = 0
    target: int = 1


class RawBlock(NamedTuple):
    """Some neighbouring lines of a corpus.

    Attributes:
        corpus: Index of the corpus.
        first: Number of the first line, from 1.
        files: The lines in each file of the corpus: as many in all.
        layout: Of a table.
    """

    corpus: int
    first: int
    files: tuple[tuple[Raw, ...], ...]
    layout: Layout = Layout()


class _Side:
    """The lines of one file, taken in pieces of the size that the other side needs."""

    def __init__(self, path: Path) -> None:
        self._coming, self._here = read_raw(path), list[Raw]()

    def fill(self) -> int:
        """Read on until a block is here or the file ends; returns how many lines are here."""
        while sum(len(raw.data) + 1 for raw in self._here) < CHUNK:
            if (raw := next(self._coming, None)) is None:
                break
            self._here.append(raw)
        return sum(raw.lines for raw in self._here)

    def take(self, lines: int) -> tuple[Raw, ...]:
        """The next lines, of which so many are here."""
        taken = []
        while lines:
            raw = self._here.pop(0)
            if raw.lines > lines:
                raw, rest = raw.cut(lines)
                self._here.insert(0, rest)
            taken.append(raw)
            lines -= raw.lines
        return tuple(taken)

    def count_rest(self) -> int:
        return sum(raw.lines for raw in chain(self._here, self._coming))


@dataclass(frozen=True)
class Lines:
    """The pairs of a block, one for each line.

    Attributes:
        first: Number of the first line, from 1.
        sources: The source side of each.
        targets: The target side of each.
        faults: Why pairs cannot be used at all (`bad_utf8`, `nul`, `too_long`), by their place in the block.
    """

    first: int
    sources: list[str]
    targets: list[str]
    faults: dict[int, str]

    @classmethod
    def of(cls, first: int, sources: list[Line], targets: list[Line]) -> Lines:
        """Lines that may be bad; of a pair with two bad sides the fault is the source's."""
        faults = dict[int, str]()
        for side in (sources, targets):
            for place in [place for place, line in enumerate(side) if line.__class__ is BadLine]:
                bad = cast("BadLine", side[place])
                faults.setdefault(place, bad.fault)
                side[place] = bad.text
        return cls(first, cast("list[str]", sources), cast("list[str]", targets), faults)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """`[2, pairs]`: characters of the source and the target sides."""
        return np.array([list(map(len, side)) for side in (self.sources, self.targets)], np.int32)

    def take(self, chosen: NDArray[np.bool_], corpus: int) -> PairBlock:
        """Some of the pairs, as those of a corpus."""
        source, target = (side.take(chosen) for side in self.texts)
        return PairBlock(corpus, self.first + np.flatnonzero(chosen), source, target)

    @cached_property
    def texts(self) -> tuple[Texts, Texts]:
        """Both sides in UTF-8."""
        return Texts.of_strings(self.sources), Texts.of_strings(self.targets)


class Reader:
    """A corpus whose sides lie in two files, line by line translations of each other. It can be pickled.

    A single file of text is the target side, and all sources are empty.
    """

    def __init__(self, paths: Sequence[Path], corpus: int, on_bad_utf8: BadUtf8) -> None:
        self._paths, self._path = paths, paths[0]
        self._corpus, self._on_bad_utf8 = corpus, on_bad_utf8

    def blocks(self) -> Iterator[RawBlock]:
        """The lines of the corpus in order, about a quarter of a MiB of each file at a time.

        Raises:
            DataError: a file is missing, empty or damaged, or the sides do not have as many lines.
        """
        sides, done = [_Side(path) for path in self._paths], 0
        while count := min(side.fill() for side in sides):
            yield RawBlock(self._corpus, done + 1, tuple(side.take(count) for side in sides))
            done += count
        counts = [done + side.count_rest() for side in sides]
        named = list(zip(map(display, self._paths), counts, strict=True))
        _refuse_empty([name for name, count in named if not count])
        if len(set(counts)) > 1:
            raise DataError(
                f"line counts differ: {', '.join(f'{name} {count}' for name, count in named)}",
                "every line of one file must be the translation of the same line of the other",
            )

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """The pairs of a block; repairs are counted in `notes`.

        Raises:
            DataError: a line is not UTF-8 (and `on_bad_utf8` is `error`), or lacks a column or key.
        """
        *sources, targets = (self._decoded(block, notes, file) for file in range(len(self._paths)))
        return Lines.of(block.first, sources[0] if sources else [""] * len(targets), targets)

    def _decoded(self, block: RawBlock, notes: ReadNotes, file: int = 0) -> list[Line]:
        decoder = Decoder(self._paths[file], self._on_bad_utf8, notes, before=block.first - 1)
        return [line for raw in block.files[file] for line in decoder.decode(raw)]


def _refuse_empty(names: Sequence[str]) -> None:
    if names:
        raise DataError(f"{' and '.join(names)}: {'is' if len(names) == 1 else 'are'} empty")


class TsvReader(Reader):
    """A TSV file; `columns` of source and target are numbers from 1, or names of the header line."""

    def __init__(
        self, path: Path, columns: tuple[int | str, int | str], corpus: int, on_bad_utf8: BadUtf8
    ) -> None:
        super().__init__([path], corpus, on_bad_utf8)
        self._columns = columns
        self._header = any(isinstance(column, str) for column in columns)

    def blocks(self) -> Iterator[RawBlock]:
        """See `Reader`; from the first line with columns on, blocks say how many these are."""
        layout, lines = Layout(), 0
        for block in super().blocks():
            if not layout.width:
                layout = self._layout(self._decoded(block, ReadNotes()))
            lines += sum(raw.lines for raw in block.files[0])
            yield block._replace(layout=layout)
        if lines == int(self._header):
            _refuse_empty([display(self._path)])

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """See `Reader`."""
        width, left, right = block.layout
        first, lines = block.first, self._decoded(block, notes)
        if self._header and first == 1:
            first, lines = 2, lines[1:]
        sources, targets = list[Line](), list[Line]()
        for place, line in enumerate(lines):
            source, target = line, ""
            if isinstance(line, str) and line:
                fields = line.split("\t")
                if len(fields) != width:
                    raise DataError(
                        f"{display(self._path)}:{first + place}: {counted(len(fields), 'column')} where "
                        f"{width} are expected",
                        "is a tab missing, or inside a text? source_column and target_column choose the "
                        "columns",
                    )
                source, target = fields[left], fields[right]
            sources.append(source)
            targets.append(target)
        return Lines.of(first, sources, targets)

    def _layout(self, lines: list[Line]) -> Layout:
        if self._header:
            header = lines[0]
            if not isinstance(header, str):
                raise DataError(f"{display(self._path)}:1: no header line that names the columns")
            names = header.split("\t")
            left, right = (_column_of(column, names, self._path) for column in self._columns)
            return Layout(len(names), left, right)
        left, right = (int(column) - 1 for column in self._columns)
        line = next((line for line in lines if isinstance(line, str) and line), None)
        width = 0 if line is None else max(line.count("\t") + 1, left + 1, right + 1)
        return Layout(width, left, right)


def _column_of(column: int | str, header: list[str], path: Path) -> int:
    if isinstance(column, int) and column <= len(header):
        return column - 1
    if column not in header:
        raise DataError(f"{display(path)}:1: no column {column}", f"the columns are: {', '.join(header)}")
    if header.count(str(column)) > 1:
        raise DataError(f"{display(path)}:1: two columns are named {column}", "rename one in this line")
    return header.index(str(column))


class JsonReader(Reader):
    """A JSONL file; `a.b` is a key within nested objects, and no key leaves that side empty."""

    def __init__(self, path: Path, keys: tuple[str | None, str], corpus: int, on_bad_utf8: BadUtf8) -> None:
        super().__init__([path], corpus, on_bad_utf8)
        self._keys = keys

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """See `Reader`."""
        sources, targets = list[Line](), list[Line]()
        for number, line in enumerate(self._decoded(block, notes), block.first):
            sides: list[Line] = [line, ""]
            if isinstance(line, str):
                sides = self._sides(line, f"{display(self._path)}:{number}", notes)
            sources.append(sides[0])
            targets.append(sides[1])
        return Lines.of(block.first, sources, targets)

    def _sides(self, line: str, where: str, notes: ReadNotes) -> list[Line]:
        if is_blank(line):
            return ["", ""]
        record = _parse(line, where)
        texts = ["" if key is None else _value(record, key, where) for key in self._keys]
        if "\\" not in line:
            return list(texts)
        return [_plain_text(text, where, self._on_bad_utf8, notes) for text in texts]


def _parse(line: str, where: str) -> dict[str, object]:
    try:
        record = json.loads(line, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as fault:
        raise DataError(f"{where}: not JSON: {fault.msg} at character {fault.pos + 1}") from None
    except (ValueError, RecursionError) as fault:
        raise DataError(f"{where}: not usable JSON: {fault}") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: not a JSON object", "each line must be like {'de': '...', 'en': '...'}")
    return record


def _value(record: dict[str, object], key: str, where: str) -> str:
    """The text under `key`, or under the path `a.b` of nested objects."""
    value: object = record.get(key)
    if value is None and "." in key:
        value = record
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value
    if value is None and key not in record:
        keys = ", ".join(map(str, record)) or "nothing"
        raise DataError(
            f"{where}: no key {key!r}", f"found {keys}; source_column and target_column name the keys"
        )
    raise DataError(f"{where}: {key!r} is {json.dumps(value)[:40]}, not a text")


def _plain_text(text: str, where: str, on_bad_utf8: BadUtf8, notes: ReadNotes) -> Line:
    """A JSON text made one line of UTF-8: escapes can bring line breaks, NUL and lone surrogates."""
    line = joined(text)
    notes.joined_lines += line != text
    try:
        line.encode()
    except UnicodeEncodeError:
        if on_bad_utf8 == "error":
            raise DataError(
                f"{where}: half of a surrogate pair (\\ud800 to \\udfff) is not text",
                "repair the line, or set data.on_bad_utf8 to skip or replace",
            ) from None
        line = without_surrogates(line)
        if on_bad_utf8 == "skip":
            return BadLine("bad_utf8", line)
        notes.replaced_lines += 1
    return BadLine("nul", line) if "\0" in line else line
