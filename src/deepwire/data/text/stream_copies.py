"""Text that can be read only once (stdin, a pipe) is copied to a file: preparation looks at it twice."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from deepwire.data.data_config import STDIN, CorpusConfig, DataConfig
from deepwire.data.text.files import display
from deepwire.errors import DataError

_FIELDS = ("source_file", "target_file", "tsv", "jsonl")


@contextmanager
def with_streams_copied(data: DataConfig) -> Iterator[DataConfig]:
    """`data` with every stream replaced by a file in `data.prepared`, which goes when the block is left.

    Errors raised inside name the stream, not the copy.
    """
    names: dict[str, str] = {}
    with ExitStack() as copies:
        changes: dict[str, object] = {
            role: [_with_copies(corpus, data, copies, names) for corpus in corpora]
            for role, corpora in data.corpora().items()
            if role != "test"
        }
        try:
            yield data.model_copy(update=changes) if names else data
        except DataError as fault:
            for copy, name in names.items():
                fault.message = fault.message.replace(copy, name)
            raise


def _with_copies(
    corpus: CorpusConfig, data: DataConfig, copies: ExitStack, names: dict[str, str]
) -> CorpusConfig:
    changes: dict[str, object] = {}
    for field in _FIELDS:
        path: Path | None = getattr(corpus, field)
        if path is not None and (path == STDIN or path.is_fifo() or path.is_char_device()):
            copy = data.prepared / f".stream-{os.getpid()}-{len(names)}"
            copies.callback(_remove, copy)
            _copy(path, copy)
            names[str(copy)] = display(path)
            changes[field] = copy
    return corpus.model_copy(update={**changes, "name": corpus.label}) if changes else corpus


def _copy(stream: Path, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as target:
        if stream == STDIN:
            shutil.copyfileobj(sys.stdin.buffer, target)
        else:
            with stream.open("rb") as source:
                shutil.copyfileobj(source, target)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
