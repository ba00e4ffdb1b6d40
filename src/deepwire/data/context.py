"""Document context: previous sentences of the document in front of each sentence, each with a separator.

Tiedemann and Scherrer 2017 (Neural Machine Translation with Extended Context): "2+1" is one previous sentence
in front of the source, "2+2" one in front of both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, ValidationError

from deepwire.config.counts import Count
from deepwire.config.section import Section, UnusedSettings
from deepwire.data.languages import Languages
from deepwire.errors import ModelError

_MOST = 1000


class ContextConfig(Section):
    """Previous sentences in front of each sentence; an empty source line ends a document."""

    source: int = Field(0, ge=0, le=_MOST, description="previous sentences in front of a source; 1 is `2+1`")
    target: int = Field(0, ge=0, le=_MOST, description="previous sentences in front of a target; 1 is `2+2`")
    loss: Literal["current", "all"] = Field(
        "current", description="what of a target is learned: the sentence alone, or its context too"
    )
    max_length: Count = Field(
        512,
        ge=1,
        description="most subwords of a side with its context; the earliest sentences are left out",
    )

    def unused_settings(self) -> UnusedSettings:
        """Settings of context where there is none."""
        if not self.target:
            yield "loss", "targets have no context; set data.context.target"
        if not self.used:
            yield "max_length", "there is no context; set data.context.source"

    @property
    def used(self) -> bool:
        """Whether any side has context."""
        return self.most > 0

    @property
    def most(self) -> int:
        """Previous sentences that the side with more of them has."""
        return max(self.source, self.target)

    @property
    def separators(self) -> int:
        """Entries of the vocabularies, behind pieces and tags, that only context needs."""
        return int(self.used)

    def to_metadata(self) -> dict[str, object]:
        """The record of the context in a stored model; empty without."""
        return {"context": self.model_dump(mode="json")} if self.used else {}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> ContextConfig:
        """Read what `to_metadata` gave; a ModelError where it is damaged."""
        try:
            return cls.model_validate(metadata.get("context", {}))
        except ValidationError:
            raise ModelError("the stored document context is damaged") from None


NO_CONTEXT = ContextConfig()


def separator_of(pieces: int, languages: Languages | None) -> int:
    """The entry behind the pieces of a vocabulary and the tags of languages."""
    return pieces + (0 if languages is None else languages.tags)


def in_front(previous: Sequence[Sequence[int]], length: int, most: int, separator: int) -> list[int]:
    """The tokens in front of a sentence of `length`: previous ones, each with the separator behind it.

    The latest sentences are taken that fit into `most` subwords and separators, with the sentence itself.
    """
    taken = 0
    for sentence in reversed(previous):
        length += len(sentence) + 1
        if length > most:
            break
        taken += 1
    return [token for sentence in previous[len(previous) - taken :] for token in (*sentence, separator)]
