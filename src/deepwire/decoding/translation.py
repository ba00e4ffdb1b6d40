"""What a translator is asked for a line, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """A line to translate."""

    text: str
    prefix: str = ""
    """Text that the translation must begin with; it ends at a word boundary."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """What else came with the line; handed through unchanged."""
    to: str = ""
    """The language to translate into; empty: the one that is chosen for all lines."""
    from_: str = ""
    """The language of the text, where it is known: for a note where the model was not trained so."""


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    text: str
    tokens: tuple[str, ...]
    """The subwords of `text`, as the vocabulary writes them."""
    log_probability: float
    """Natural logarithm, summed over the subwords and EOS."""
    score: float
    """The log-probability under the length penalty; what candidates are ranked by."""


@dataclass(frozen=True)
class Translation:
    """The translations of one line, best first; an empty line has one empty candidate with score 0."""

    line: int
    """Counted from 1."""
    request: Request
    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text

    @property
    def score(self) -> float:
        """The score of the best translation."""
        return self.candidates[0].score
