"""The digest of all that a prepared corpus depends on; and JSON files with checksums.

They guard against damage, not against people: who can write the files can write their checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from deepwire.data.data_config import STDIN, CorpusConfig, DataConfig, Role
from deepwire.data.text.corpus import corpus_files, directed
from deepwire.data.text.files import display, read_bytes
from deepwire.data.vocabulary import existing
from deepwire.data.vocabulary_config import ExistingConfig, SubwordNmtConfig
from deepwire.errors import DataError, DeepwireError
from deepwire.io.atomic import write_json
from deepwire.io.regular_files import read_json, read_regular

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
        **({"placeholders": 2} if data.placeholders else {}),  # True: fewer kinds of variables
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
        return {"type": config.type, "digest": existing(config).digest}
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
