"""Source lines as subword ids: what is empty, what is too long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepwire.data.vocabulary import BOS, EOS, Vocabulary

Warn = Callable[[str], None]
"""Receives one line of text for the user."""

CHARACTERS_PER_SUBWORD = 64
"""More than any subword has on average: what is cut at so many times the limit is too long anyway."""


@dataclass(frozen=True)
class SourceEncoder:
    """Turns a line into what the model reads: `(BOS) (tag) w1 .. wk EOS`.

    Args:
        longest: More subwords than this are cut off, with a warning that names the line.
        bos: Whether the model was trained with BOS in front of the source.
    """

    vocabulary: Vocabulary
    longest: int
    bos: bool
    warn: Warn

    def encode_lines(
        self, texts: Sequence[str], lines: Sequence[int], tags: Sequence[int | None] | None = None
    ) -> list[list[int]]:
        """The ids of each text; empty where there is nothing to translate.

        Args:
            texts: Raw text.
            lines: Their numbers.
            tags: What stands in front of each, if anything.
        """
        # A line of a million characters must not cost its full length.
        enough = [text[: self.longest * CHARACTERS_PER_SUBWORD] for text in texts]
        full = [row for row, text in enumerate(enough) if text and not text.isspace()]
        encoded: list[list[int]] = [[] for _ in texts]
        for row, ids in zip(full, self.vocabulary.encode_lines([enough[row] for row in full]), strict=True):
            if len(ids) > self.longest or len(enough[row]) < len(texts[row]):
                self.warn(f"line {lines[row]}: longer than {self.longest} subwords, the rest is left out")
            if ids:
                head = [BOS] if self.bos else []
                tag = None if tags is None else tags[row]
                head += [] if tag is None else [tag]
                encoded[row] = [*head, *ids[: self.longest], EOS]
        return encoded
