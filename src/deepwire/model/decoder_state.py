"""The state of a decoder between two steps: a value that the search owns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from deepwire.model.context import Context
from deepwire.model.kv_cache import BeamAncestry, CacheIndex, KeyValueCache
from deepwire.model.mixers.mixer import State


@dataclass(frozen=True)
class DecoderState:
    """A context with the memory of N sentences, and mixer states of N * W rows.

    The W rows of a sentence are consecutive.

    Attributes:
        context: Languages of the rows, memory, and the position of the decoder.
        states: One for each mixer call; first axis of every tensor: rows, or in a `KeyValueCache` the groups
            of the index.
        sentences: N.
    """

    context: Context
    states: tuple[State, ...]
    sentences: int

    @property
    def index(self) -> CacheIndex:
        """The position of the decoder, and which cache slots its rows attend to."""
        return self.context.positions

    @property
    def rows(self) -> int:
        """N * W."""
        return self.index.rows

    @property
    def position(self) -> int:
        """Number of tokens read so far."""
        return self.index.position

    def at(self, index: CacheIndex, states: tuple[State, ...] | None = None) -> Self:
        """The same at another position."""
        context = self.context.replace(index=index)
        return replace(self, context=context, states=self.states if states is None else states)

    def expand(self, width: int) -> Self:
        """Repeat each row `width` times; neither the memory nor the key/value caches are copied."""

        def repeat(tensor: Tensor) -> Tensor:
            return tensor.repeat_interleave(width, 0)

        index, of_groups = self.index, None
        if index.ancestry is None:
            # Rows that have nothing in common yet are groups of their own: they may never share anything.
            of_groups = repeat
            skipped = None if index.skipped is None else repeat(index.skipped)
            index = replace(index, groups=index.groups * width, skipped=skipped)
        else:
            index = index.expand(width)
        languages = _change_languages(self.context.languages, repeat)
        context = self.context.replace(index=index, languages=languages)
        return replace(self, context=context, states=_change_states(self.states, repeat, of_groups))

    def reorder(self, rows: Tensor) -> Self:
        """The beam reorder: new row i continues old row `rows[i]` of the same sentence.

        Memory and key/value caches stay as they are, see `CacheIndex.reorder`; recurrent states are copied.
        """

        def select(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, rows)

        # All rows of a sentence have one language, so languages stay as they are.
        states = _change_states(self.states, select, select if self.index.width == 1 else None)
        return self.at(self.index.reorder(rows), states)

    def keep(self, sentences: Tensor) -> Self:
        """Keep these sentences with all their rows, in this order."""

        def indices_of_sentences(count: int) -> Tensor:
            each = count // self.sentences
            return (sentences.unsqueeze(1) * each + sentences.new_tensor(range(each))).flatten()

        rows, groups = indices_of_sentences(self.rows), indices_of_sentences(self.index.groups)

        def of_rows(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, rows)

        def of_groups(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, groups)

        memory = (each.changed(lambda leaf: leaf.index_select(0, sentences)) for each in self.context.memory)
        context = self.context.replace(
            languages=_change_languages(self.context.languages, of_rows),
            memory=tuple(memory),
            index=self.index.keep(groups),
        )
        states = _change_states(self.states, of_rows, of_groups)
        return replace(self, context=context, states=states, sentences=sentences.size(0))

    def ensure_capacity(self, steps: int = 1) -> Self:
        """With room for so many steps in all key/value caches."""
        index = self.index
        if index.used + steps * index.width <= index.capacity:
            return self
        cache = next((state for state in self.states if isinstance(state, KeyValueCache)), None)
        index, change = index.ensure_capacity(cache, steps)
        return self.at(index, tuple(change(s) if isinstance(s, KeyValueCache) else s for s in self.states))

    def allocate_slots(self) -> Self:
        """With a slot for each row at this position; there must be room for them."""
        return self.at(self.index.allocate_slots())

    def advance(self, states: tuple[State, ...]) -> Self:
        """After this position."""
        return self.at(self.index.advance(), states)

    def mapped(self, change: TensorFunction) -> Self:
        """With all tensors changed, always in the same order."""
        index, languages = self.index, self.context.languages
        if index.ancestry is not None:
            index = replace(index, ancestry=BeamAncestry(*map(change, index.ancestry)))
        if index.skipped is not None:
            index = replace(index, skipped=change(index.skipped))
        context = Context(
            languages=None if languages is None else change(languages),
            memory=tuple(each.changed(change) for each in self.context.memory),
            index=index,
        )
        return replace(self, context=context, states=_change_states(self.states, change, change))


TensorFunction = Callable[[Tensor], Tensor]


def _change_languages(languages: Tensor | None, change: TensorFunction) -> Tensor | None:
    """Languages `[rows]` changed; one for all rows stays as it is."""
    return languages if languages is None or languages.size(0) == 1 else change(languages)


def _change_states(
    states: tuple[State, ...], of_rows: TensorFunction, of_groups: TensorFunction | None
) -> tuple[State, ...]:
    """States with their tensors of rows and of groups (key/value caches) changed; None = caches stay."""

    def changed(state: State) -> State:
        if isinstance(state, KeyValueCache):
            return state if of_groups is None else KeyValueCache(*map(of_groups, state))
        return tuple(of_rows(tensor) for tensor in state)

    return tuple(changed(state) for state in states)
