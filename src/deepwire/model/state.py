"""The state of a decoder between two steps: a value that the search owns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from deepwire.model.cross_attention import Memory
from deepwire.model.mixers.base import State


@dataclass(frozen=True)
class DecoderState:
    """Memory of N sentences and mixer states of N * W rows; the W rows of a sentence follow each other.

    Attributes:
        memory: One for each layer; first axis: sentences.
        states: One for each mixer call; first axis of every leaf: rows.
        position: Number of tokens read so far.
        rows: N * W.
        languages: Target language of each row, `[rows]`, where the model depends on it.
    """

    memory: tuple[Memory, ...]
    states: tuple[State, ...]
    position: int
    rows: int
    sentences: int
    languages: Tensor | None = None

    def expand(self, width: int) -> DecoderState:
        """Repeat each row `width` times; the memory is not copied."""
        states = _map(self.states, lambda leaf: leaf.repeat_interleave(width, 0))
        languages = None if self.languages is None else self.languages.repeat_interleave(width)
        return replace(self, states=states, rows=self.rows * width, languages=languages)

    def take(self, rows: Tensor) -> DecoderState:
        """Reorder rows within their sentences: new row i is old row `rows[i]`; the memory stays."""
        states = _map(self.states, lambda leaf: leaf.index_select(0, rows))
        languages = None if self.languages is None else self.languages.index_select(0, rows)
        return replace(self, states=states, rows=rows.size(0), languages=languages)

    def keep(self, sentences: Tensor) -> DecoderState:
        """Keep these sentences with all their rows, in this order."""
        width = self.rows // self.sentences
        offsets = sentences.new_tensor(range(width))
        rows = (sentences.unsqueeze(1) * width + offsets).flatten()
        memory = tuple(Memory(*(leaf.index_select(0, sentences) for leaf in each)) for each in self.memory)
        return replace(self.take(rows), memory=memory, sentences=sentences.size(0))


def _map(states: tuple[State, ...], change: Callable[[Tensor], Tensor]) -> tuple[State, ...]:
    return tuple(tuple(change(leaf) for leaf in state) for state in states)
