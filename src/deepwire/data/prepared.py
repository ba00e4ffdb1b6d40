"""Preparation: text files to vocabularies and token stores, made once and reused until something changes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from deepwire.data.config import CorpusConfig, DataConfig, FilterConfig
from deepwire.data.corpus import Pair, read_pairs
from deepwire.data.filters import PairFilter
from deepwire.data.fingerprint import FileDigests, describe, digest_of
from deepwire.data.order import Part
from deepwire.data.report import CheckReport
from deepwire.data.segmentation import segment
from deepwire.data.spool import spooled
from deepwire.data.staging import Staging, read_chunk
from deepwire.data.store import StoreWriter, TokenStore
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import DataError, ModelError, ResourceError

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how many pairs are done, and of how many, where that is known."""

HEADER, REPORT, VOCABULARY, TRAIN, VALID = "prepared.json", "report.json", "vocabulary", "train", "valid"
_FILE_DIGESTS = "files.json"
_PROGRESS_PAIRS = 10_000
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Place(TypedDict):
    """A line of a corpus."""

    corpus: str
    line: int


class Dropped(TypedDict):
    """How many pairs were dropped for a reason, and where the first of them are."""

    count: int
    examples: list[Place]


class CheckRecord(TypedDict):
    """The part of `CheckReport.to_dict` that commands show; the file holds all of it."""

    pairs: int
    kept: int
    dropped: dict[str, Dropped]
    warnings: list[str]


@dataclass(frozen=True)
class Prepared:
    """A corpus ready for training."""

    folder: Path
    vocabularies: Vocabularies
    train: TokenStore
    """The training pairs; `train.parts` are its corpora with their weights."""
    valid: TokenStore | None
    report: dict[str, CheckRecord]
    """What was kept and dropped and why, for `train` and `valid`."""
    digest: str
    """Differs when text, vocabulary or settings differ."""
    reused: bool
    """Whether it was there already."""


def prepare(data: DataConfig, *, seed: int, progress: Progress | None = None) -> Prepared:
    """Filter and segment the text of a run, or take what was made of it before.

    The result lies in `<data.prepared>/<source>-<target>-<digest>`; the digest covers the bytes of the text
    and every setting that matters, the seed not among them. Memory does not grow with the corpus, but for the
    digests of `filters.drop_duplicates`. Several processes may prepare the same at once: one works, the
    others wait.

    Args:
        data: The data section of a run file.
        seed: Chooses the pairs that the report shows.
        progress: Hears how far it is.

    Raises:
        DataError: the text cannot be read or used, or does not support the vocabulary.
        ResourceError: there is no room, or the folder cannot be written.
    """
    tell = progress or _silent
    with _write_errors(data.prepared), spooled(data) as files:
        tell("reading files", 0, None)
        digests = FileDigests(data.prepared / _FILE_DIGESTS)
        description = describe(files, digests)
        digest = digest_of(description)
        folder = data.prepared / f"{data.source}-{data.target}-{digest[:12]}"
        found = _open(folder, files, digest)
        if found is not None:
            digests.save()
            return found
        data.prepared.mkdir(parents=True, exist_ok=True)
        digests.save()
        with _only_one(folder, tell):
            found = _open(folder, files, digest)
            if found is not None:
                return found
            _build(folder, files, description, seed, tell)
        made = _open(folder, files, digest, reused=False)
    if made is None:
        raise ResourceError(f"{folder}: changed while it was prepared", "run the same command again")
    return made


def _silent(_what: str, _done: int, _total: int | None) -> None: ...


def _open(folder: Path, data: DataConfig, digest: str, *, reused: bool = True) -> Prepared | None:
    """The prepared corpus of a folder; None when it is not there, not complete or damaged."""
    try:
        header = json.loads((folder / HEADER).read_bytes())
        if header["digest"] != digest:
            return None
        parts = [
            Part(int(part["start"]), int(part["stop"]), corpus.weight)
            for part, corpus in zip(header["corpora"], data.train, strict=True)
        ]
        return Prepared(
            folder=folder,
            vocabularies=Vocabularies.load(folder / VOCABULARY),
            train=TokenStore(folder / TRAIN, parts),
            valid=TokenStore(folder / VALID) if data.valid is not None else None,
            report=json.loads((folder / REPORT).read_bytes()),
            digest=digest,
            reused=reused,
        )
    except (OSError, DataError, ModelError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _build(folder: Path, data: DataConfig, description: dict[str, object], seed: int, tell: Progress) -> None:
    for stale in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temporary.mkdir()
    try:
        corpora, reports = _Builder(data, temporary, seed, tell).build()
        header = {"digest": digest_of(description), "corpora": corpora, "made_from": description}
        _write_json(temporary / REPORT, reports)
        _write_json(temporary / HEADER, header)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class _Builder:
    """Makes one prepared corpus in a folder."""

    def __init__(self, data: DataConfig, folder: Path, seed: int, tell: Progress) -> None:
        self._data, self._folder, self._seed, self._tell = data, folder, seed, tell
        self._training = PairFilter(data.filters)

    def build(self) -> tuple[list[dict[str, object]], dict[str, object]]:
        """Everything but the header and the report; returns what goes into these."""
        data, reports = self._data, dict[str, object]()
        report, staging = self._report(data.train), Staging(self._folder / "train.staged")
        with staging:
            pairs = self._stage(data.train, self._training, report, staging)
            vocabularies = Vocabularies.learn(data.vocabulary, self._announced(pairs))
        vocabularies.save(self._folder / VOCABULARY)
        counts = self._segment(staging, report, TRAIN, vocabularies, data.filters.max_length)
        reports[TRAIN] = report.to_dict()
        if sum(counts) == 0:
            raise _nothing_left(report)
        if data.valid is not None:
            report, staging = self._report([data.valid]), Staging(self._folder / "valid.staged")
            with staging:
                lenient = FilterConfig(max_characters=1 << 30, max_ratio=1e9, drop_duplicates=False)
                for pair in self._stage([data.valid], PairFilter(lenient), report, staging):
                    report.also_in_training += self._training.seen(pair)
            if sum(self._segment(staging, report, VALID, vocabularies, None)) == 0:
                raise _nothing_left(report)
            reports[VALID] = report.to_dict()
        ends = [sum(counts[: number + 1]) for number in range(len(counts))]
        corpora = [
            {"name": corpus.label, "start": end - count, "stop": end}
            for corpus, count, end in zip(data.train, counts, ends, strict=True)
        ]
        return corpora, reports

    def _report(self, corpora: list[CorpusConfig]) -> CheckReport:
        labels = (self._data.source, self._data.target)
        return CheckReport([corpus.label for corpus in corpora], labels, seed=self._seed)

    def _stage(
        self, corpora: list[CorpusConfig], pair_filter: PairFilter, report: CheckReport, staging: Staging
    ) -> Iterator[Pair]:
        """Read and filter; pass on and stage what is kept, count what is dropped."""
        read = 0
        for index, corpus in enumerate(corpora):
            for pair in read_pairs(corpus, self._data, index=index, notes=report.notes):
                read += 1
                if read % _PROGRESS_PAIRS == 0:
                    self._tell("reading pairs", read, None)
                reason = pair_filter.reason(pair)
                if reason is None:
                    staging.add(pair)
                    yield pair
                else:
                    report.add(pair, reason)

    def _announced(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        count = 0
        for count, pair in enumerate(pairs, 1):  # noqa: B007 - the count is wanted after the loop
            yield pair
        self._tell("learning the vocabulary", count, None)

    def _segment(
        self,
        staging: Staging,
        report: CheckReport,
        name: str,
        vocabularies: Vocabularies,
        max_length: int | None,
    ) -> list[int]:
        """Write a store; returns how many pairs of each corpus are in it."""
        total = sum(chunk.pairs for chunk in staging.chunks)
        counts, done = [0] * len(report.corpora), 0
        sizes = vocabularies.source.size, vocabularies.target.size
        with StoreWriter(self._folder / name, *sizes) as store:
            for result in segment(staging.path, staging.chunks, self._folder / VOCABULARY, max_length):
                store.add(result.source, result.target)
                numbers, sources, targets = read_chunk(staging.path, result.chunk)
                for line, source, target, kept in zip(
                    numbers, sources, targets, result.kept.tolist(), strict=True
                ):
                    report.add(Pair(line, source, target, result.chunk.corpus), None if kept else "too_long")
                counts[result.chunk.corpus] += int(result.kept.sum())
                done += result.chunk.pairs
                self._tell("segmenting", done, total)
            store.finish()
        staging.path.unlink()
        return counts


def _nothing_left(report: CheckReport) -> DataError:
    names = ", ".join(corpus.name for corpus in report.corpora)
    counts = ", ".join(f"{name} {dropped.count}" for name, dropped in report.dropped.items())
    return DataError(
        f"{names}: none of {report.pairs} pairs can be used",
        f"dropped: {counts}; see deepwire data check, and data.filters",
    )


def _write_json(path: Path, value: object) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _only_one(folder: Path, tell: Progress) -> Iterator[None]:
    """Wait until no other process works on `folder`; the lock goes with the process, however it ends."""
    with folder.with_name(f".{folder.name}.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another process that prepares the same", 0, None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        where = fault.filename if isinstance(fault.filename, str) else str(folder)
        if fault.errno in _FULL:
            raise ResourceError(
                f"{where}: no space left on the disk",
                "free some, or set data.prepared to a folder elsewhere; nothing half-made was left",
            ) from None
        raise ResourceError(
            f"{where}: cannot write: {fault.strerror or fault}", "set data.prepared to a folder you may write"
        ) from None
