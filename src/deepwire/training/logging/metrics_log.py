"""metrics.jsonl and other records of a run, one JSON object a line, written once; and TensorBoard events."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol

from deepwire.config.counts import counted, few
from deepwire.errors import DataError, ModelError, UsageError
from deepwire.io.atomic import disk_errors, free_name, write_text
from deepwire.io.json_lines import finite
from deepwire.io.regular_files import open_for_appending, open_regular

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
            self._file.seek(0)
            self._digest = hashlib.blake2b(self._file.read().encode(), digest_size=16)

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, record: dict[str, Value]) -> None:
        """Append one record; it is visible to readers at once."""
        with disk_errors(self.path):
            line = json.dumps(finite(record)) + "\n"
            self._file.write(line)
            self._file.flush()
            self._digest.update(line.encode())

    @property
    def digest(self) -> str:
        """Stands for all records in the file."""
        return self._digest.hexdigest()

    def sync(self) -> None:
        """Wait until all records have reached the disk: a checkpoint must not be ahead of them."""
        with disk_errors(self.path):
            os.fsync(self._file.fileno())


def cut_after(path: Path, update: int, *, drop_validation: bool = False) -> str:
    """Remove the records of later updates, and a last line that a crash left unfinished.

    Earlier lines that are no records are removed too; the file as it was is kept as ``NAME.damaged`` then.

    Args:
        path: ``metrics.jsonl`` or another file of JSON objects with the key ``update``.
        update: The last update to keep.
        drop_validation: Remove the record of a validation at ``update`` too: it will be made again.

    Returns:
        What was damaged and what is kept, for the user; empty where all was well.

    Raises:
        UsageError: If the file is a link or a pipe.
        ResourceError: If it cannot be read or written.
    """
    if not os.path.lexists(path):
        return ""
    with disk_errors(path), open_for_appending(path) as file:
        file.seek(0)
        lines = file.read().split("\n")
    records = [_record(line) for line in lines]
    kept = [
        line
        for line, record in zip(lines, records, strict=True)
        if record is not None and _belongs(record, update, drop_validation)
    ]
    # The last is empty, or what a crash left.
    damaged = [
        number
        for number, (line, record) in enumerate(zip(lines[:-1], records, strict=False), 1)
        if line and record is None
    ]
    said = ""
    if damaged:
        copy = free_name(path, "damaged")
        with disk_errors(copy):
            shutil.copyfile(path, copy)
        left_out = few([str(number) for number in damaged])
        left_out = f"line {left_out} is" if len(damaged) == 1 else f"lines {left_out} are"
        said = (
            f"{path.name}: {left_out} damaged and left out; "
            f"{counted(len(kept), 'record is', 'records are')} kept, "
            f"and the file as it was is {copy.name}"
        )
    if "\n".join([*kept, ""]) != "\n".join(lines):
        write_text(path, "".join(f"{line}\n" for line in kept))
    return said


def _record(line: str) -> dict[str, object] | None:
    """What a line holds; None where it is no record of an update."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("update"), int) else None


def _belongs(record: dict[str, object], update: int, drop_validation: bool) -> bool:
    at = record["update"]
    if not isinstance(at, int):
        return False
    return at < update or (at == update and not (drop_validation and record.get("kind") == "valid"))


def read_records(path: Path) -> list[Mapping[str, object]]:
    """The records of a file, in the order of their updates; none where the file is missing.

    The last line may be unfinished: training can be under way.

    Raises:
        DataError: The file cannot be read, or an earlier line is no JSON object.
    """
    try:
        with open_regular(path) as file:
            lines = file.read().decode("utf-8").split("\n")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read: {error}") from error
    records: list[Mapping[str, object]] = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                break
            raise DataError(f"{path}:{number}: is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise DataError(f"{path}:{number}: holds {type(record).__name__}, not an object")
        records.append(record)
    return records


def number_of(record: Mapping[str, object], name: str) -> float:
    """What a record of an update says of a quantity.

    Raises:
        ModelError: It has no such number.
    """
    value = record.get(name)
    if not isinstance(value, int | float):
        raise ModelError(f"metrics.jsonl: update {record.get('update')} has no {name}")
    return float(value)


class EventWriter(Protocol):
    """Takes named numbers of an update."""

    def write(self, kind: str, update: int, values: dict[str, float]) -> None:
        """Record ``values`` under ``kind/name`` at ``update``."""

    def close(self) -> None:
        """Flush and close."""


class NoEvents:
    """Records nothing."""

    def write(self, kind: str, update: int, values: dict[str, float]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class TensorBoardEvents:
    """Writes event files for TensorBoard.

    Args:
        folder: Where they go.
        after: Events of later updates are hidden; they belong to an interrupted part of the run.

    Raises:
        UsageError: If TensorBoard is not installed.
    """

    def __init__(self, folder: Path, after: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError(
                "training.tensorboard is true, but TensorBoard is not installed",
                "pip install 'deepwire[tensorboard]', or set training.tensorboard to false",
            ) from error
        self._writer = SummaryWriter(str(folder), purge_step=after + 1)

    def write(self, kind: str, update: int, values: dict[str, float]) -> None:
        """Record ``values`` under ``kind/name`` at ``update``."""
        for name, value in values.items():
            self._writer.add_scalar(f"{kind}/{name}", value, update)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()
