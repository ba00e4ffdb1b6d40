"""Real sentences for the tests of this folder."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

MULTI30K = Path(__file__).parents[2] / "examples" / "multi30k"


@cache
def lines(language: str, count: int | None = None) -> list[str]:
    """The first lines of the training text among the examples."""
    text = gzip.decompress((MULTI30K / f"train.{language}.gz").read_bytes()).decode()
    return text.split("\n")[:-1][:count]
