"""The state of a decoder between two steps: a value that the search owns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from deepwire.model.cross_attention import Memory
from deepwire.model.kv_cache import BeamAncestry, CacheIndex, KeyValueCache
from deepwire.model.mixers.mixer import State


@dataclass(frozen=True)
class DecoderState:
    """Memory of N sentences and mixer states of N * W rows; the W rows of a sentence are consecutive.

    Attributes:
        memory: One for each layer; first axis: sentences.
        states: One for each mixer call; first axis of every tensor: rows, or in a `KeyValueCache` the groups
            of `cache_index`.
        cache_index: The position of the decoder, and which cache slots its rows attend to.
        languages: Target language of each row, `[rows]`, or of all, `[1]`, where the model depends on it.
    """

    memory: tuple[Memory, ...]
    states: tuple[State, ...]
    cache_index: CacheIndex
    sentences: int
    languages: Tensor | None = None

    @property
    def rows(self) -> int:
        """N * W."""
        return self.cache_index.rows

    @property
    def position(self) -> int:
        """Number of tokens read so far."""
        return self.cache_index.position

    def expand(self, width: int) -> Self:
        """Repeat each row `width` times; neither the memory nor the key/value caches are copied."""

        def repeat(tensor: Tensor) -> Tensor:
            return tensor.repeat_interleave(width, 0)

        languages = _change_languages(self.languages, repeat)
        if self.cache_index.ancestry is None:
            # Rows that have nothing in common yet are groups of their own: they may never share anything.
            index, of_groups = self.cache_index, repeat
            skipped = None if index.skipped is None else repeat(index.skipped)
            index = replace(index, groups=index.groups * width, skipped=skipped)
        else:
            index, of_groups = self.cache_index.expand(width), None
        states = _change_states(self.states, repeat, of_groups)
        return replace(self, states=states, cache_index=index, languages=languages)

    def reorder(self, rows: Tensor) -> Self:
        """The beam reorder: new row i continues old row `rows[i]` of the same sentence.

        Memory and key/value caches stay as they are, see `CacheIndex.reorder`; recurrent states are copied.
        """

        def select(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, rows)

        # All rows of a sentence have one language, so languages stay as they are.
        states = _change_states(self.states, select, select if self.cache_index.width == 1 else None)
        return replace(self, states=states, cache_index=self.cache_index.reorder(rows))

    def keep(self, sentences: Tensor) -> Self:
        """Keep these sentences with all their rows, in this order."""

        def indices_of_sentences(count: int) -> Tensor:
            each = count // self.sentences
            return (sentences.unsqueeze(1) * each + sentences.new_tensor(range(each))).flatten()

        rows = indices_of_sentences(self.rows)
        groups = indices_of_sentences(self.cache_index.groups)
        return replace(
            self,
            memory=tuple(Memory(*(leaf.index_select(0, sentences) for leaf in each)) for each in self.memory),
            states=_change_states(
                self.states,
                lambda tensor: tensor.index_select(0, rows),
                lambda tensor: tensor.index_select(0, groups),
            ),
            cache_index=self.cache_index.keep(groups),
            sentences=sentences.size(0),
            languages=_change_languages(self.languages, lambda tensor: tensor.index_select(0, rows)),
        )

    def with_room(self, steps: int = 1) -> Self:
        """With room for so many steps in all key/value caches."""
        index = self.cache_index
        if index.used + steps * index.width <= index.capacity:
            return self
        cache = next((state for state in self.states if isinstance(state, KeyValueCache)), None)
        index, change = index.with_room(cache, steps)
        states = tuple(change(state) if isinstance(state, KeyValueCache) else state for state in self.states)
        return replace(self, states=states, cache_index=index)

    def begun(self) -> Self:
        """With a slot for each row at this position; there must be room for them."""
        return replace(self, cache_index=self.cache_index.begun())

    def advanced(self, states: tuple[State, ...]) -> Self:
        """After this position."""
        return replace(self, states=states, cache_index=self.cache_index.advanced())

    def mapped(self, change: TensorFunction) -> Self:
        """With all tensors changed, always in the same order."""
        index, languages = self.cache_index, self.languages
        if index.ancestry is not None:
            index = replace(index, ancestry=BeamAncestry(*map(change, index.ancestry)))
        if index.skipped is not None:
            index = replace(index, skipped=change(index.skipped))
        return replace(
            self,
            memory=tuple(Memory(*map(change, each)) for each in self.memory),
            states=_change_states(self.states, change, change),
            cache_index=index,
            languages=languages if languages is None else change(languages),
        )


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
