"""metrics.jsonl: one JSON object a line, each update once, also after interruptions."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from types import TracebackType

from deepwire.io.atomic import write_text
from deepwire.io.disk_errors import disk_errors
from deepwire.io.regular_files import open_for_appending

Number = float | int | str
Value = Number | None | dict[str, dict[str, float]] | list["Value"]
"""A number, a word, scores by direction, or rows of numbers."""


class MetricsLog:
    """Appends records to a file.

    Non-finite numbers are written as null, which JSON has, and not as NaN, which it does not.

    Args:
        path: ``metrics.jsonl``; made when missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(path):
            self._file = open_for_appending(path)

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, record: dict[str, Value]) -> None:
        """Append one record; it is visible to readers at once."""
        with disk_errors(self.path):
            self._file.write(json.dumps(_finite(record)) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Wait until all records have reached the disk: a checkpoint must not be ahead of them."""
        with disk_errors(self.path):
            os.fsync(self._file.fileno())


def _finite(value: object) -> object:
    """The value with null in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cut_after(path: Path, update: int, *, drop_validation: bool = False) -> None:
    """Remove the records of later updates, and a last line that a crash left unfinished.

    Args:
        path: ``metrics.jsonl`` or another file of JSON objects with the key ``update``.
        update: The last update to keep.
        drop_validation: Remove the record of a validation at ``update`` too: it will be made again.
    """
    if not os.path.lexists(path):
        return
    with disk_errors(path), open_for_appending(path) as file:
        file.seek(0)
        lines = file.read().split("\n")
    kept = [line for line in lines if _belongs(line, update, drop_validation)]
    if "\n".join([*kept, ""]) != "\n".join(lines):
        write_text(path, "".join(f"{line}\n" for line in kept))


def _belongs(line: str, update: int, drop_validation: bool) -> bool:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    at = record.get("update") if isinstance(record, dict) else None
    if not isinstance(at, int):
        return False
    return at < update or (at == update and not (drop_validation and record.get("kind") == "valid"))
