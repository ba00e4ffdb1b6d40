"""The state of a decoder between two steps: a value that the search owns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from deepwire.model.cross_attention import Memory
from deepwire.model.mixers.mixer import State
from deepwire.model.past import Lineage, Past, Slots


@dataclass(frozen=True)
class DecoderState:
    """Memory of N sentences and mixer states of N * W rows; the W rows of a sentence follow each other.

    Attributes:
        memory: One for each layer; first axis: sentences.
        states: One for each mixer call; first axis of every leaf: rows, or the groups of `past` in `Slots`.
        past: Where the decoder stands, and what its rows see of the slots.
        languages: Target language of each row, `[rows]`, or of all, `[1]`, where the model depends on it.
    """

    memory: tuple[Memory, ...]
    states: tuple[State, ...]
    past: Past
    sentences: int
    languages: Tensor | None = None

    @property
    def rows(self) -> int:
        """N * W."""
        return self.past.rows

    @property
    def position(self) -> int:
        """Number of tokens read so far."""
        return self.past.position

    def expand(self, width: int) -> Self:
        """Repeat each row `width` times; neither the memory nor what has been read is copied."""

        def repeat(leaf: Tensor) -> Tensor:
            return leaf.repeat_interleave(width, 0)

        languages = _of_rows(self.languages, repeat)
        if self.past.lineage is None:
            # Rows that have nothing in common yet are groups of their own: they may never share anything.
            past, groups = replace(self.past, groups=self.past.groups * width), repeat
        else:
            past, groups = self.past.shared(width), None
        return replace(self, states=_changed(self.states, repeat, groups), past=past, languages=languages)

    def take(self, rows: Tensor) -> Self:
        """Reorder rows within their sentences: new row i is old row `rows[i]`; memory and slots stay."""

        def select(leaf: Tensor) -> Tensor:
            return leaf.index_select(0, rows)

        # All rows of a sentence have one language, so languages stay as they are.
        states = _changed(self.states, select, select if self.past.width == 1 else None)
        return replace(self, states=states, past=self.past.take(rows))

    def keep(self, sentences: Tensor) -> Self:
        """Keep these sentences with all their rows, in this order."""

        def of_sentences(count: int) -> Tensor:
            each = count // self.sentences
            return (sentences.unsqueeze(1) * each + sentences.new_tensor(range(each))).flatten()

        rows, groups = of_sentences(self.rows), of_sentences(self.past.groups)
        return replace(
            self,
            memory=tuple(Memory(*(leaf.index_select(0, sentences) for leaf in each)) for each in self.memory),
            states=_changed(
                self.states,
                lambda leaf: leaf.index_select(0, rows),
                lambda leaf: leaf.index_select(0, groups),
            ),
            past=self.past.keep(groups),
            sentences=sentences.size(0),
            languages=_of_rows(self.languages, lambda leaf: leaf.index_select(0, rows)),
        )

    def with_room(self) -> Self:
        """With room for another step."""
        past = self.past
        if past.used + past.width <= past.capacity:
            return self
        slots = next((state for state in self.states if isinstance(state, Slots)), None)
        past, change = past.with_room(slots)
        states = tuple(change(state) if isinstance(state, Slots) else state for state in self.states)
        return replace(self, states=states, past=past)

    def begun(self) -> Self:
        """With a slot for each row at this position; there must be room for them."""
        return replace(self, past=self.past.begun())

    def following(self, states: tuple[State, ...]) -> Self:
        """After this position."""
        return replace(self, states=states, past=self.past.following())

    def mapped(self, change: Change) -> Self:
        """With all tensors changed, always in the same order."""
        past, languages = self.past, self.languages
        if past.lineage is not None:
            past = replace(past, lineage=Lineage(*map(change, past.lineage)))
        return replace(
            self,
            memory=tuple(Memory(*map(change, each)) for each in self.memory),
            states=_changed(self.states, change, change),
            past=past,
            languages=languages if languages is None else change(languages),
        )


Change = Callable[[Tensor], Tensor]


def _of_rows(languages: Tensor | None, change: Change) -> Tensor | None:
    """Languages `[rows]` changed; one for all rows stays as it is."""
    return languages if languages is None or languages.size(0) == 1 else change(languages)


def _changed(states: tuple[State, ...], rows: Change, groups: Change | None) -> tuple[State, ...]:
    """States with leaves of rows and leaves of groups changed; None leaves them as they are."""

    def changed(state: State) -> State:
        if isinstance(state, Slots):
            return state if groups is None else Slots(*map(groups, state))
        return tuple(rows(leaf) for leaf in state)

    return tuple(changed(state) for state in states)
