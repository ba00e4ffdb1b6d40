"""What a model reads of a line: source subwords, the tag of the target language, the first target token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from deepwire.data.languages import Direction, Languages
from deepwire.data.vocabulary import BOS, EOS, Vocabularies, Vocabulary
from deepwire.errors import UsageError

Warn = Callable[[str], None]
"""Receives one line of text for the user."""

CHARACTERS_PER_SUBWORD = 64
"""More than any subword has on average: what is cut at so many times the limit is too long anyway."""


@dataclass(frozen=True)
class SourceTokenizer:
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


class TargetLanguage(NamedTuple):
    """What a model reads to translate into a language."""

    language_id: int
    """Its index among the languages of the model."""
    source_tag: int | None
    """What stands in front of the source; None: nothing."""
    first_token: int
    """What the decoder reads first: BOS or a tag."""


class LanguageSelector:
    """The languages that a model translates into, by their names.

    Args:
        languages: Those of the model; None for a model of one direction.
        vocabularies: Whose pieces the tags come after.
        warn: Receives a note for each direction that the model was not trained in.
    """

    def __init__(self, languages: Languages | None, vocabularies: Vocabularies, warn: Warn) -> None:
        self.languages = languages
        self._sizes = vocabularies.source.size, vocabularies.target.size
        self._warn = warn
        self._noted: set[Direction] = set()

    def check(self, to: str, from_: str) -> None:
        """See that the model knows these languages, those that are not empty.

        Raises:
            UsageError: It does not, or has one direction only.
        """
        if self.languages is None or to:
            self.select(to, from_)
        elif from_:
            self.languages.require_source(from_)

    def select(self, to: str = "", from_: str = "") -> TargetLanguage | None:
        """The target language of that name; None with a model of one direction.

        Args:
            to: Its name; it may be empty where there is only one.
            from_: The language of the text, where it is known.

        Raises:
            UsageError: The model does not know a language, or cannot be told one, or must be told one.
        """
        languages = self.languages
        if languages is None:
            if to or from_:
                raise UsageError(
                    f"the model has one direction only and cannot be told {to or from_!r}",
                    "leave out the language",
                )
            return None
        if not to and len(languages.targets) > 1:
            raise UsageError(
                "say which language to translate into, with --to or for each line",
                f"the model translates into {', '.join(languages.targets)}",
            )
        index = languages.target(to or languages.targets[0])
        if from_:
            languages.require_source(from_)
            self._note(Direction(from_, languages.names[index]))
        tags = [size + index for size in self._sizes]
        return TargetLanguage(
            index, tags[0] if languages.tags_source else None, tags[1] if languages.tags_target else BOS
        )

    def _note(self, direction: Direction) -> None:
        if self.languages is not None and direction not in {*self.languages.directions, *self._noted}:
            self._noted.add(direction)
            self._warn(f"the model was not trained from {direction.source} to {direction.target} (zero-shot)")


def target_language_ids(targets: Sequence[TargetLanguage], device: torch.device) -> Tensor:
    """The indices of the target languages of a batch, `[N]` int64."""
    return torch.tensor([target.language_id for target in targets], dtype=torch.int64, device=device)
