"""What training recorded for analyses: one JSON object a line, as in metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from deepwire.errors import DataError
from deepwire.io.regular_files import open_regular


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
