"""Names of files that may have been meant in place of one that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import PurePath

_CUTOFF = 0.6


def near_files(name: str, there: Iterable[str], count: int = 3) -> list[str]:
    """File names of the same kind that differ from ``name`` in little, the nearest first.

    The endings say the kind, and nothing about how near ``a.de`` is to ``b.de``. Two names are of the same
    kind where one only goes on, as ``.de.gz`` does.
    """
    stem, kind = _parts(name)
    found: dict[str, list[str]] = {}
    for one in sorted(there):
        other, its = _parts(one)
        if its.startswith(kind) or kind.startswith(its):
            found.setdefault(other, []).append(one)
    near = difflib.get_close_matches(stem, list(found), count, _CUTOFF)
    return [one for other in near for one in found[other]][:count]


def _parts(name: str) -> tuple[str, str]:
    """The name without its endings, and these, in small letters."""
    endings = "".join(PurePath(name).suffixes)
    return name.removesuffix(endings).lower(), endings.lower()
