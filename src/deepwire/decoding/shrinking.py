"""When finished sentences leave the batch."""

from __future__ import annotations

from collections.abc import Sequence

_SHARE = 8


def worth_shrinking(ended: Sequence[bool]) -> bool:
    """Whether so many sentences have ended that leaving them out pays for copying the state of the others."""
    return sum(ended) * _SHARE >= len(ended) > 0
