"""Which language each row of a batch is translated into: tags, and the rows' languages for the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

import torch
from torch import Tensor

from deepwire.data.languages import Direction, Languages
from deepwire.data.vocabulary import BOS, Vocabularies
from deepwire.decoding.contract import StateT
from deepwire.decoding.ensemble import Ensemble, EnsembleState
from deepwire.decoding.source import Warn
from deepwire.errors import UsageError


class Target(NamedTuple):
    """What it takes to translate into a language."""

    language: int
    """Its index."""
    source_tag: int | None
    """What stands in front of the source; None: nothing."""
    first: int
    """What the decoder reads first: BOS or a tag."""


class Targets:
    """The languages that a model translates into.

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
            UsageError: it does not, or has one direction only.
        """
        if self.languages is None or to:
            self.choose(to, from_)
        elif from_:
            self.languages.require_source(from_)

    def choose(self, to: str = "", from_: str = "") -> Target | None:
        """The target language of that name; None with a model of one direction.

        Args:
            to: Its name; it may be empty where there is only one.
            from_: The language of the text, where it is known.

        Raises:
            UsageError: the model does not know a language, or cannot be told one, or must be told one.
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
        return Target(
            index, tags[0] if languages.tags_source else None, tags[1] if languages.tags_target else BOS
        )

    def _note(self, direction: Direction) -> None:
        if self.languages is not None and direction not in {*self.languages.directions, *self._noted}:
            self._noted.add(direction)
            self._warn(f"the model was not trained from {direction.source} to {direction.target} (zero-shot)")


@dataclass
class TaggedState(Generic[StateT]):
    """The state of a model, and what its rows read in the first step."""

    state: StateT
    first: Tensor | None
    """`[rows]`; None after the first step."""

    def expand(self, width: int) -> TaggedState[StateT]:
        """Each row repeated `width` times."""
        first = None if self.first is None else self.first.repeat_interleave(width)
        return TaggedState(self.state.expand(width), first)

    def reorder(self, rows: Tensor) -> TaggedState[StateT]:
        """New row i continues old row `rows[i]`."""
        first = None if self.first is None else self.first.index_select(0, rows)
        return TaggedState(self.state.reorder(rows), first)

    def keep(self, sentences: Tensor) -> TaggedState[StateT]:
        """Only these sentences; after the first step."""
        return TaggedState(self.state.keep(sentences), self.first)


class IntoLanguages(Generic[StateT]):
    """A model that translates each sentence of one batch into its own language.

    The decoder begins with the tag of the language where the model was trained so; tags are never put out.

    Args:
        model: The models.
        targets: Of each sentence.
        pieces: Entries of the target vocabulary; what comes after them are tags.
    """

    def __init__(self, model: Ensemble[StateT], targets: Sequence[Target], pieces: int) -> None:
        self._model, self._targets, self._pieces = model, targets, pieces

    def start(self, source: Tensor, max_length: int) -> TaggedState[EnsembleState[StateT]]:
        """Encode `source` `[N, S]`, whose sentences are those of `targets`."""
        rows = language_rows(self._targets, source.device)
        first = torch.tensor([target.first for target in self._targets], device=source.device)
        return TaggedState(self._model.start(source, max_length, languages=rows), first)

    def step(
        self, tokens: Tensor, state: TaggedState[EnsembleState[StateT]]
    ) -> tuple[Tensor, TaggedState[EnsembleState[StateT]]]:
        """Log-probabilities `[rows, V]` of what follows `tokens` `[rows]`."""
        read = tokens if state.first is None else state.first
        log_probs, following = self._model.step(read, state.state)
        log_probs[:, self._pieces :] = -torch.inf
        return log_probs, TaggedState(following, None)


def language_rows(targets: Sequence[Target], device: torch.device) -> Tensor:
    """The indices of the target languages of a batch, `[N]` int64."""
    return torch.tensor([target.language for target in targets], dtype=torch.int64, device=device)
