"""JSON lines: what every ``--json`` prints, and what objects that are read may look like."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence


def json_line(value: object) -> str:
    """``value`` as JSON of one line, which every program reads and UTF-8 can hold.

    Numbers that are not finite are null.
    """
    plain = finite(value)
    line = json.dumps(plain, ensure_ascii=False)
    # Half a surrogate pair, which only an escape can write.
    return line if line.encode(errors="replace").decode() == line else json.dumps(plain)


def finite(value: object) -> object:
    """``value`` with null in place of numbers that are not finite: JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def unique_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """The `object_pairs_hook` of `json.loads` for text; a ValueError where a key comes twice."""
    keys = dict(pairs)
    if len(keys) < len(pairs):
        raise ValueError("a key comes twice")
    return keys
