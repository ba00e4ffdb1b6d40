"""The `data.filters` part of a run file: which training pairs are left out."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from deepwire.config.counts import Count
from deepwire.config.section import Section


class FilterConfig(Section):
    """Which pairs training leaves out. Lengths count characters or subwords, never words between spaces."""

    min_characters: Count = Field(default=1, ge=1, description="shortest side, in characters")
    max_characters: Count = Field(
        default=2000, ge=1, description="longest side, in characters, before segmentation"
    )
    max_length: Count = Field(
        default=256, ge=1, description="longest side, in subwords, applied by preparation"
    )
    max_ratio: float = Field(
        default=4.0,
        ge=1,
        description="longer side over shorter side, in letters (an ideograph counts as three)",
    )
    drop_duplicates: bool = Field(default=True, description="keep only the first of equal pairs")
    drop_copies: bool = Field(default=False, description="drop pairs whose two sides are the same")

    @model_validator(mode="after")
    def _lengths_in_order(self) -> Self:
        if self.min_characters > self.max_characters:
            raise ValueError(
                f"min_characters {self.min_characters} is above max_characters {self.max_characters}"
            )
        return self
