"""Steps that are recorded once for each shape, and carried out as one CUDA graph from then on.

A step of a decoder is a hundred small kernels or more, and a GPU is done with each of them sooner than Python
can start the next. A recorded step starts them all at once. What it reads and writes stays at one place in
memory, so the state of a batch is brought there when its shape changes, and what a step changes is
left there from then on.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from deepwire.decoding.recorder import Recorder
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.model.past import Moment
from deepwire.model.state import DecoderState

# Shapes that are remembered. Each has a memory of the encoder's results and logits of its own.
MOST = 32
# Source lengths are multiples of this, so that batches come in few shapes.
_COLUMNS = 16


class _Holder:
    """A batch: while it is there, nobody else may use the recorded step that its state lies in."""

    recorded: _Recorded | None = None


@dataclass(frozen=True)
class GraphedState(DecoderState):
    """A state of more sentences than were asked for: those after the first `count` only fill it up."""

    count: int = 0
    holder: _Holder = field(default_factory=_Holder)

    def take(self, rows: Tensor) -> Self:
        """New row i continues old row `rows[i]`."""
        others = torch.arange(rows.numel(), self.rows, device=rows.device)
        return super().take(torch.cat([rows, others]))

    def keep(self, sentences: Tensor) -> Self:
        """Only these sentences, with all their rows."""
        count = sentences.numel()
        return replace(super().keep(_filled(sentences)), count=count)


class Graphed:
    """A model whose steps are recorded; a `deepwire.decoding.ensemble.Member` like the model itself.

    The first step of a shape is done as it is, the second is recorded. Log-probabilities are only valid until
    the next step.

    Args:
        model: Its parameters must stay where they are in memory.
        recorder: Of the device of the model.
    """

    def __init__(self, model: TranslationModel, recorder: Recorder) -> None:
        self._model = model
        self._recorder: Recorder | None = recorder
        # None: the shape was met once. Least recently used first.
        self._recorded: OrderedDict[Hashable, _Recorded | None] = OrderedDict()

    @torch.inference_mode()
    def start(self, source: Tensor, max_length: int, *, languages: Tensor | None = None) -> GraphedState:
        """Encode `source` `[N, S]`; `languages` `[N]` are the target languages, in a model of several."""
        count, length = source.shape
        columns = -(-length // _COLUMNS) * _COLUMNS
        source = torch.nn.functional.pad(source, (0, columns - length), value=self._model.pad_id)
        if languages is not None and languages.numel() == count:
            languages = _filled(languages)
        state = self._model.start(_filled(source), max_length, languages=languages)
        return GraphedState(**vars(state), count=count)

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Log-probabilities `[rows, V]` of what follows `tokens` `[rows]`."""
        if self._recorder is None or not isinstance(state, GraphedState):
            return self._model.step(tokens, state)
        state, rows = state.with_room(), tokens.numel()
        recorded = self._recorded_for(tokens, state, self._recorder)
        if recorded is None:
            filled = torch.cat([tokens, tokens[:1].expand(state.rows - rows)])
            log_probs, following = self._model.step(filled, state)
        else:
            vectors = self._model.target_embedding.vectors(state.position, 1)
            log_probs, following = recorded.step(vectors, tokens, state)
        return log_probs[:rows], following

    def _recorded_for(self, tokens: Tensor, state: GraphedState, recorder: Recorder) -> _Recorded | None:
        """The recorded step of the shape of this state; None if it is new, or another batch lies there."""
        shape = _shape(state)
        known = shape in self._recorded
        recorded = self._recorded.get(shape)
        if known and recorded is None:
            recorded = _Recorded(self._model, tokens, state, recorder)
        self._recorded[shape] = recorded
        self._recorded.move_to_end(shape)
        if len(self._recorded) > MOST:
            self._recorded.popitem(last=False)
        return recorded if recorded is not None and recorded.is_free_for(state.holder) else None

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each token of `target_output`, `[B, T]` float32, 0 at PAD."""
        return self._model.score(source, target_input, target_output, languages=languages)

    def restrict(self, first: int, last: int) -> Self:
        """The model with groups `first` to `last` of its decoder alone; ValueError where there are none."""
        return self._with(self._model.restrict(first, last), self._recorder)

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> Self:
        """The model that steps to `tokens` `[k]` alone; not recorded, as each batch has tokens of its own."""
        return self._with(self._model.select(tokens, allowed), None)

    def _with(self, model: TranslationModel, recorder: Recorder | None) -> Self:
        other = copy(self)
        other._model, other._recorder, other._recorded = model, recorder, OrderedDict()
        return other


class _Recorded:
    """The step of one shape: the tensors that it reads, those that it writes, and what carries it out."""

    def __init__(
        self, model: TranslationModel, tokens: Tensor, state: GraphedState, recorder: Recorder
    ) -> None:
        width, device = state.past.width, tokens.device
        self._holder: weakref.ref[_Holder] | None = None
        self._tokens = tokens.new_zeros(state.rows)
        vectors = model.target_embedding.vectors(state.position, 1)
        self._vectors = None if vectors is None else torch.empty_like(vectors)
        self._first = torch.arange(width, device=device)
        self._moment = Moment(torch.zeros((), dtype=torch.int64, device=device), self._first.clone())
        # The states of batches come and go; these tensors are the model's, and hold no batch in memory.
        self._state = replace(state.mapped(torch.zeros_like), holder=_Holder())
        self._leaves = _leaves(self._state)

        def work() -> tuple[Tensor, DecoderState]:
            past = replace(self._state.past, moment=self._moment)
            return model.step_at(self._vectors, self._tokens, replace(self._state, past=past))

        (self._log_probs, self._after), self._carry_out = recorder.record(work)

    def is_free_for(self, holder: _Holder) -> bool:
        """Whether no other batch lies here."""
        other = None if self._holder is None else self._holder()
        return other is None or other is holder

    def step(
        self, vectors: Tensor | None, tokens: Tensor, state: GraphedState
    ) -> tuple[Tensor, GraphedState]:
        """Carry the step out for a state of its shape."""
        for mine, given in zip(self._leaves, _leaves(state), strict=True):
            if mine is not given:
                mine.copy_(given)
        self._hold(state.holder)
        self._tokens[: tokens.numel()].copy_(tokens)
        if self._vectors is not None and vectors is not None:
            self._vectors.copy_(vectors)
        past = state.past
        self._moment.position.fill_(past.position)
        torch.add(self._first, past.used, out=self._moment.slots)
        self._carry_out()
        after = self._after
        past = replace(past, lineage=after.past.lineage, used=past.used + past.width).following()
        return self._log_probs, replace(
            state, memory=after.memory, states=after.states, past=past, languages=after.languages
        )

    def _hold(self, holder: _Holder) -> None:
        before = holder.recorded
        if before is not self:
            if before is not None:
                before._holder = None
            holder.recorded, self._holder = self, weakref.ref(holder)


def _leaves(state: DecoderState) -> list[Tensor]:
    found: list[Tensor] = []

    def seen(leaf: Tensor) -> Tensor:
        found.append(leaf)
        return leaf

    state.mapped(seen)
    return found


def _shape(state: DecoderState) -> Hashable:
    """What states must have in common to be read by the same recorded step."""
    past = state.past
    return past.groups, past.width, past.capacity, *((leaf.shape, leaf.dtype) for leaf in _leaves(state))


def _filled(sentences: Tensor) -> Tensor:
    """`[N, ...]` with the first repeated until there are a power of two."""
    count = sentences.size(0)
    more = (1 << (count - 1).bit_length()) - count
    return torch.cat([sentences, sentences[:1].expand(more, *sentences.shape[1:])]) if more else sentences
