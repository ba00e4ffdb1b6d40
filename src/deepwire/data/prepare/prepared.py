"""Preparation: text files to vocabularies and token stores, made once and reused until something changes.

Digests say what changed. Checksums guard against damage, not against people, who can write them too.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from deepwire.data.batches.epoch_order import DirectionShare, Part, epoch_weights, shares
from deepwire.data.batches.token_store import HEADER as STORE_HEADER
from deepwire.data.batches.token_store import TokenStore
from deepwire.data.context import NO_CONTEXT, ContextConfig
from deepwire.data.data_config import STDIN, CorpusConfig, DataConfig, Role
from deepwire.data.languages import Languages
from deepwire.data.prepare.build import TRAIN, VALID, VOCABULARY, Builder, Progress
from deepwire.data.selection import Report
from deepwire.data.text.corpus import corpus_files, directed, directions_of
from deepwire.data.text.files import display, read_bytes
from deepwire.data.vocabulary import Vocabularies, existing
from deepwire.data.vocabulary_config import ExistingConfig, SubwordNmtConfig
from deepwire.errors import DataError, DeepwireError, ModelError, ResourceError
from deepwire.io.atomic import disk_errors, new_folder, write_json
from deepwire.io.regular_files import UnreadableError, acquire_lock, cannot_read, read_json, read_regular

_OWN, _FILES = "check", "files"


def write_checked(path: Path, content: Mapping[str, object], files: Iterable[Path] = ()) -> None:
    """Writes a JSON file with checksums of itself and of small files of its folder."""
    sums = {file.relative_to(path.parent).as_posix(): _digest(read_regular(file)) for file in sorted(files)}
    content = {**content, _FILES: sums} if sums else dict(content)
    write_json(path, {**content, _OWN: _digest_of_json(content)})


def read_checked(path: Path) -> dict[str, object]:
    """Reads a JSON file with checksums, and compares its content and the files that it names with them.

    Raises:
        DataError, ModelError: one of them is missing, or is not what it was.
        OSError: one of them cannot be read.
    """
    content = read_json(path)
    files = content.get(_FILES, {})
    if content.pop(_OWN, None) != _digest_of_json(content) or not isinstance(files, dict):
        raise DataError(f"{path}: damaged, or written by another version of deepwire")
    for name, written in files.items():
        if _digest(read_regular(path.parent / name)) != written:
            raise DataError(f"{path.parent / name}: damaged: it is not what was written")
    return content


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def _digest_of_json(content: Mapping[str, object]) -> str:
    return _digest(json.dumps(content, sort_keys=True).encode())


VERSION = 1
"""Changes when preparation itself changes what it makes."""

_KNOWN = "digests"
_YOUNG_SECONDS = 2.0
"""A file can change again within one tick of its clock: digests of files as young as this are not kept."""


class FileDigests:
    """Digests of files; those of files that did not change since (size and time) are kept in a small file.

    Args:
        cache: The file to keep them in. That it cannot be read or written costs time and nothing else.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._changed = False
        self._known: dict[str, list[object]] = {}
        with suppress(OSError, DeepwireError):
            known = read_checked(cache).get(_KNOWN)
            self._known = known if isinstance(known, dict) else {}

    def digest(self, path: Path) -> str:
        """BLAKE2b of the bytes of a file; a DataError where it cannot be read, or is a stream."""
        if path == STDIN or path.is_fifo() or path.is_char_device():
            raise DataError(f"{display(path)}: a stream cannot be prepared", "write it to a file first")
        try:
            with path.open("rb") as file:
                status, now = os.fstat(file.fileno()), time.time()
                known = self._known.get(str(path.absolute()))
                if isinstance(known, list) and known[:2] == [status.st_size, status.st_mtime_ns]:
                    return str(known[2])
                digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
        except OSError as fault:
            next(read_bytes(path), b"")  # says what is wrong with it in the words of the reader
            raise DataError(f"{path}: cannot read: {fault.strerror}") from None
        if now - status.st_mtime > _YOUNG_SECONDS:
            self._known[str(path.absolute())] = [status.st_size, status.st_mtime_ns, digest]
            self._changed = True
        return digest

    def save(self) -> None:
        """Keeps what is known for the next run."""
        with suppress(OSError, DeepwireError):
            if self._changed and self._cache.parent.is_dir():
                write_checked(self._cache, {_KNOWN: self._known})


def describe(data: DataConfig, digests: FileDigests) -> dict[str, object]:
    """The text and the settings that the result of preparation depends on.

    Not among it: weights, names and paths of corpora, the test text, and settings that only training uses.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    train, valid = describe_role(data, "train", digests), describe_role(data, "valid", digests)
    return {
        "version": VERSION,
        "languages": data.directions or [data.source, data.target],
        "train": train,
        "valid": valid if data.directions is not None else valid[0] if valid else None,
        "vocabulary": _describe_vocabulary(data, digests),
        "filters": data.filters.model_dump(mode="json"),
        "on_bad_utf8": data.on_bad_utf8,
        **({} if data.text is None else {"text": data.text.model_dump(mode="json")}),
        **({"documents": True} if data.context.used else {}),
    }


def describe_role(data: DataConfig, role: Role, digests: FileDigests) -> list[dict[str, object]]:
    """The files of one role, corpus by corpus; a DataError where one cannot be read."""
    return [_describe_corpus(corpus, data, digests) for corpus in directed(data, role)]


def digest_of(description: dict[str, object]) -> str:
    """64 hexadecimal digits."""
    return _digest(json.dumps(description, sort_keys=True, ensure_ascii=False).encode())


def _describe_corpus(corpus: CorpusConfig, data: DataConfig, digests: FileDigests) -> dict[str, object]:
    description: dict[str, object] = {
        "form": "tsv" if corpus.tsv is not None else "jsonl" if corpus.jsonl is not None else "text",
        "files": [digests.digest(path) for path in corpus_files(corpus, data)],
        "columns": [corpus.source_column, corpus.target_column],
    }
    if corpus.alignments is not None:
        description["alignments"] = digests.digest(corpus.alignments)
    if data.directions is not None:
        description["direction"] = [corpus.source, corpus.target]
    return description


def _describe_vocabulary(data: DataConfig, digests: FileDigests) -> dict[str, object]:
    config = data.vocabulary
    if isinstance(config, ExistingConfig):
        return {"type": config.type, "digest": existing(config)[1]}
    # What changes nothing is left out: what earlier versions prepared is as good.
    unused = {"sampling"} if data.directions is not None else {"sampling", "balance_temperature"}
    if isinstance(config, SubwordNmtConfig) and config.min_count == 1:
        unused |= {"min_count"}
    described: dict[str, object] = config.model_dump(mode="json", exclude=unused)
    if isinstance(config, SubwordNmtConfig):
        for name, path in (("codes", config.codes), ("target_codes", config.target_codes)):
            described[name] = None if path is None else digests.digest(path)
        described |= {"vocabulary": None, "target_vocabulary": None, "threshold": 1}
        described |= {"rare": "unknown"} if config.min_count > 1 else {}
    return described


HEADER, REPORT = "prepared.json", "report.json"
_FORMAT = 2
"""2: with a digest of each file. What another version left is prepared again."""
_CHECKED_AT_ONCE = 1 << 30
"""A store of fewer bytes is compared with its checksums when it is opened, which takes a second at most; of a
larger one the sizes of the files are compared."""
_MAX_NAMED = 4
"""With more languages than this the folder is named after their number."""


@dataclass(frozen=True)
class Prepared:
    """A corpus ready for training.

    Attributes:
        folder: Where it is.
        vocabularies: Of both sides.
        train: The training pairs; `train.parts` are its corpora with their weights.
        valid: The validation pairs.
        report: The pairs kept and dropped and why, for `train` and `valid`, or `train en-de` and so on.
        digest: Differs when text, vocabulary or settings differ.
        reused: Whether it was there already.
        languages: The languages of a run with several directions.
        mix: The share of each direction in an epoch; empty without directions.
        temperature: The temperature of the sampling of directions.
        corpora: Names of the training corpora, in the order of `train.parts`.
        context: The previous sentences in front of each sentence.
    """

    folder: Path
    vocabularies: Vocabularies
    train: TokenStore
    valid: TokenStore | None
    report: dict[str, Report]
    digest: str
    reused: bool
    languages: Languages | None = None
    mix: tuple[DirectionShare, ...] = ()
    temperature: float = 1.0
    corpora: tuple[str, ...] = ()
    context: ContextConfig = NO_CONTEXT

    @property
    def model_sizes(self) -> tuple[int, int, int]:
        """Entries of both vocabularies, tags and separator included, and languages (0: one direction).

        A model of text of one side has no source: 0 entries.
        """
        if self.train.packed:
            return 0, self.vocabularies.target.size, 0
        tags = (0 if self.languages is None else self.languages.tags) + self.context.separators
        languages = 0 if self.languages is None else len(self.languages.names)
        return self.vocabularies.source.size + tags, self.vocabularies.target.size + tags, languages

    def place(self, pair: int) -> str:
        """Where a training pair (from 0) stands in the text, such as `train:17`."""
        if self.train.lines is None:
            return f"pair {pair + 1} of {self.folder.name}"
        names = (name for name, part in zip(self.corpora, self.train.parts, strict=True) if pair < part.stop)
        return f"{next(names)}:{self.train.lines[pair]}"


def prepare(data: DataConfig, *, seed: int, progress: Progress | None = None) -> Prepared:
    """Filters and segments the text of a run, or takes what was made of it before.

    The result lies in `<data.prepared>/<languages>-<digest>`; the digest covers the bytes of the text
    and every setting that matters, the seed not among them. Memory does not grow with the corpus, but for the
    digests of `filters.drop_duplicates` and, with `context`, 33 bytes a line. Several processes may prepare
    the same at once: one works, the others wait.

    Args:
        data: The data section of a run file.
        seed: Chooses the pairs that the report shows.
        progress: Hears how far it is.

    Raises:
        DataError: the text cannot be read or used, or does not support the vocabulary.
        UsageError: the folder cannot be made, or may not be written.
        ResourceError: there is no room.
    """
    progress = progress or (lambda *_: None)
    with disk_errors(data.prepared):
        progress("reading files", 0, None)
        digests = _known_digests(data)
        description = describe(data, digests)
        digest = digest_of(description)
        folder = data.prepared / f"{_named_after(data)}-{digest[:12]}"
        prepared, _ = _reuse(folder, data, digest)
        data.prepared.mkdir(parents=True, exist_ok=True)
        digests.save()
        if prepared is not None:
            return prepared
        with acquire_lock(
            folder.with_name(f".{folder.name}.lock"),
            busy=lambda _: progress("waiting for another process that prepares the same", 0, None),
        ):
            prepared, fault = _reuse(folder, data, digest)
            if prepared is not None:
                return prepared
            if fault:
                progress(f"{fault}; the text is prepared again", 0, None)
            _build(folder, data, description, seed, progress)
        prepared, fault = _reuse(folder, data, digest)
    if prepared is None:
        raise ResourceError(f"{folder}: changed while it was prepared: {fault}", "run the same command again")
    return replace(prepared, reused=False)


def text_digest(data: DataConfig) -> str:
    """Digest of all that a run takes from its files: all that preparation depends on, and the test text.

    The folders that the files lie in are not among it. A DataError where one cannot be read.
    """
    digests = _known_digests(data)
    digest = digest_of({**describe(data, digests), "test": describe_role(data, "test", digests)})
    digests.save()
    return digest


def preparation_digest(data: DataConfig) -> str | None:
    """The `Prepared.digest` of the text if it is prepared now; None where a file cannot be read."""
    digests = _known_digests(data)
    try:
        digest = digest_of(describe(data, digests))
    except DataError:
        return None
    digests.save()
    return digest


def _known_digests(data: DataConfig) -> FileDigests:
    return FileDigests(data.prepared / "files.json")


def _reuse(folder: Path, data: DataConfig, digest: str) -> tuple[Prepared | None, str]:
    """The prepared corpus of a folder; or why it cannot be used, empty if nothing is there.

    Raises:
        DataError: a file may not be read, or the disk fails: its content is not known.
    """
    if not folder.exists():
        return None, ""
    try:
        return _open(folder, data, digest), ""
    except OSError as fault:
        error: DataError | ModelError = cannot_read(Path(fault.filename or folder), fault)
    except (DataError, ModelError) as fault:
        error = fault
    if isinstance(error, UnreadableError):
        raise DataError(error.message, f"{error.hint}; or delete {folder}: then the text is prepared again")
    return None, error.message


def _open(folder: Path, data: DataConfig, digest: str) -> Prepared:
    """The prepared corpus of a folder; an error where it is not complete, damaged, or of another version."""
    header = read_checked(folder / HEADER)
    if header["format"] != _FORMAT or header["digest"] != digest:
        raise DataError(f"{folder}: of another text or version of deepwire")
    places = [(corpus["start"], corpus["stop"]) for corpus in cast("list[dict[str, int]]", header["corpora"])]
    corpora = directed(data, "train")
    parts, mix = _mixed(data, corpora, places)
    train = TokenStore(folder / TRAIN, parts)
    valid = None if data.valid is None else TokenStore(folder / VALID)
    for store in filter(None, (train, valid)):
        if store.nbytes < _CHECKED_AT_ONCE:
            store.check()
    return Prepared(
        folder=folder,
        vocabularies=Vocabularies.load(folder / VOCABULARY),
        train=train,
        valid=valid,
        report=cast("dict[str, Report]", read_json(folder / REPORT)),
        digest=digest,
        reused=True,
        languages=data.languages,
        mix=mix,
        temperature=data.sampling_temperature,
        corpora=tuple(corpus.label for corpus in corpora),
        context=data.context,
    )


def _mixed(
    data: DataConfig, corpora: Sequence[CorpusConfig], places: Sequence[tuple[int, int]]
) -> tuple[list[Part], tuple[DirectionShare, ...]]:
    """The corpora in the store, how often an epoch reads them, and how much each direction has of it."""
    weights = [corpus.weight for corpus in corpora]
    groups, mix = directions_of(corpora, data), tuple[DirectionShare, ...]()
    if groups is not None and data.languages is not None:
        mixed = ([stop - start for start, stop in places], weights, groups, data.sampling_temperature)
        mix = tuple(shares(data.languages, *mixed))
        weights = epoch_weights(*mixed)
    return [Part(*place, weight) for place, weight in zip(places, weights, strict=True)], mix


def _named_after(data: DataConfig) -> str:
    if data.languages is None:
        return f"{data.source}-{data.target}"
    names = data.languages.names
    return "-".join(names) if len(names) <= _MAX_NAMED else f"{len(names)}-languages"


def _build(
    folder: Path, data: DataConfig, description: dict[str, object], seed: int, progress: Progress
) -> None:
    with new_folder(folder) as temporary:
        corpora, reports = Builder(data, temporary, seed, progress).build()
        write_json(temporary / REPORT, reports)
        header = {
            "format": _FORMAT,
            "digest": digest_of(description),
            "corpora": corpora,
            "made_from": description,
        }
        small = [*(temporary / VOCABULARY).iterdir(), *temporary.glob(f"*/{STORE_HEADER}")]
        write_checked(temporary / HEADER, header, [temporary / REPORT, *small])
