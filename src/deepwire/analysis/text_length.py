"""What the length of a text is counted in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from deepwire.evaluation.tokenizers import script_without_spaces

LengthUnit = Literal["words", "characters"]


def unit_of(lines: Sequence[str]) -> LengthUnit:
    """Words, or characters where the script has no spaces between words, as that of Japanese."""
    return "characters" if script_without_spaces(lines) else "words"


def text_lengths(lines: Sequence[str], unit: LengthUnit) -> list[int]:
    """The length of each line: what stands between white space, or all characters but white space."""
    words = [line.split() for line in lines]
    return [len(each) if unit == "words" else sum(map(len, each)) for each in words]
