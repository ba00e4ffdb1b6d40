"""The `data.text` part of a run file: text of one side, as a language model reads it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deepwire.config.counts import Count
from deepwire.config.section import ShorthandSection

Unit = Literal["lines", "documents"]


class TextConfig(ShorthandSection):
    """Text of one side: documents one after the other, in blocks of tokens that cross their bounds.

    A plain string stands for the unit.
    """

    written_as = (str,)
    plain_sets = ("unit",)

    unit: Unit = Field(
        default="lines",
        description="lines: each is a document; documents: lines up to an empty one, with their line breaks",
    )
    block: Count = Field(
        default=256,
        ge=2,
        le=1 << 20,
        description="tokens of a training sequence; what a token sees ends at the beginning of its block, "
        "not at that of its document",
    )
