"""Names of files that may have been meant in place of one that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import PurePath

_CUTOFF = 0.6


def similar_file_names(name: str, there: Iterable[str], count: int = 3) -> list[str]:
    """File names of the same kind that differ from ``name`` in little, the nearest first.

    The endings say the kind, and nothing about how near ``a.de`` is to ``b.de``. Two names are of the same
    kind where one only goes on, as ``.de.gz`` does.
    """
    stem, kind = _parts(name)
    by_stem: dict[str, list[str]] = {}
    for candidate in sorted(there):
        its_stem, its_kind = _parts(candidate)
        if its_kind.startswith(kind) or kind.startswith(its_kind):
            by_stem.setdefault(its_stem, []).append(candidate)
    near = difflib.get_close_matches(stem, list(by_stem), count, _CUTOFF)
    return [candidate for near_stem in near for candidate in by_stem[near_stem]][:count]


def _parts(name: str) -> tuple[str, str]:
    """The name without its endings, and these, in small letters."""
    endings = "".join(PurePath(name).suffixes)
    return name.removesuffix(endings).lower(), endings.lower()
