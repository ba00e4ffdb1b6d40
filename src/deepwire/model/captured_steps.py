"""Decoder steps that are captured once, on a GPU for each shape, and replayed as one from then on.

A step of a decoder is a hundred small kernels or more, and a device is done with each of them sooner than
Python can launch the next. A replay launches them all at once: as a CUDA graph on a GPU, as a tape
(`deepwire.ops.cpu_tape`) on a CPU. What it reads and writes stays at fixed addresses, so the state of a batch
is copied there when its shape changes, and what a step changes is left there from then on.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Literal, Protocol, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from deepwire.errors import DeepwireError
from deepwire.model.cross_attention import Layers
from deepwire.model.decoder_state import DecoderState
from deepwire.model.encoder_decoder import EncoderDecoder
from deepwire.model.kv_cache import CAPACITY_STEP, CacheIndex, GraphStep, KeyValueCache
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.attention import few_shapes
from deepwire.ops.cpu_tape import (
    BeamSteps,
    CpuTape,
    Numbers,
    Program,
    Replay,
    Sizes,
    ValueReadError,
    Work,
    library,
)

Result = TypeVar("Result")

MAX_GRAPHS = 32
"""Shapes whose graphs are kept. Each holds the encoder's results and the logits of one batch in memory."""
MEMORY_FOR_GRAPHS = 16 * 2**30
"""Bytes of a GPU that must be free. On an H200, graphs of a Transformer base took 5.5 GiB."""
# Source lengths are padded to multiples of this, so that batches come in few shapes.
_LENGTH_STEP = 16
# Sentences times the width of a model: with more, beginning an operation takes little of its time.
_WIDTH = 2**13
# Steps that run as they are before one is recorded on a CPU, which takes about as long as so many.
PATIENCE = 40
# Slots that caches get at a time on a CPU.
_ROOM = 64
# Encoding more takes longer than beginning each operation.
_FEW_TOKENS = 128


def is_captured(wanted: bool | Literal["auto"], device: torch.device) -> bool:
    """Whether the steps of a model on this GPU are captured; `wanted` is `decoding.cuda_graphs`."""
    return torch.cuda.mem_get_info(device)[0] >= MEMORY_FOR_GRAPHS if wanted == "auto" else wanted


def capturing(
    model: TranslationModel, device: torch.device, wanted: bool | Literal["auto"]
) -> TranslationModel | CapturedModel:
    """The model with its steps captured, where this device can do that; `wanted` as in `is_captured`."""
    if device.type == "cuda":
        return CapturedModel(model, CudaGraphCapture(device)) if is_captured(wanted, device) else model
    compiled = None if model.head.table.weight.dtype != torch.float32 else library()
    most = max(8, _WIDTH // model.head.table.weight.size(1))
    return model if compiled is None else CapturedModel(model, CpuTape(model, compiled, most))


class GraphCapture(Protocol):
    """Captures work whose tensors stay at their addresses, and whose Python numbers stay as they are."""

    def capture(self, work: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        """The result of `work`, and the replay: only a replay fills the tensors which were returned.

        `work` may be run more than once, must not look at values of tensors, and must make no tensor from
        numbers of the host.
        """
        ...


class CudaGraphCapture:
    """Captures CUDA graphs. The graphs of one object share memory, so they run one after the other."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def capture(self, work: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        """See `GraphCapture`."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            # What libraries do at their first call, at the first of a shape and at the first on a stream
            # cannot be captured: cuDNN makes handles, plans and room to work in.
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                work()
            torch.cuda.current_stream().wait_stream(self._stream)
            # Other threads, such as those of a server, may go on meanwhile.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                result = work()
        return result, graph.replay


class _BatchToken:
    """Stands for a batch: while it is alive, no other batch may use the graph that its state lies in."""

    captured: _CapturedStep | None = None


@dataclass(frozen=True)
class CapturedState(DecoderState):
    """A state of a captured model.

    Attributes:
        padded: Whether it is filled up to a power of two with more sentences than were asked for.
        count: How many were; those after them are padding.
    """

    padded: bool = False
    count: int = 0
    batch: _BatchToken = field(default_factory=_BatchToken)

    def reorder(self, rows: Tensor) -> Self:
        """New row i continues old row `rows[i]`."""
        if rows.numel() < self.rows:
            rows = torch.cat([rows, torch.arange(rows.numel(), self.rows, device=rows.device)])
        return super().reorder(rows)

    def keep(self, sentences: Tensor) -> Self:
        """Only these sentences, with all their rows."""
        count = sentences.numel()
        if self.padded:
            sentences = _pad_to_power_of_two(sentences)
        return replace(super().keep(sentences), count=count)


class CapturedModel:
    """A model whose steps are captured; an `EnsembleMember` like the model itself.

    The first steps run as they are, then one is captured: on a GPU for each shape, on a CPU for all sizes.
    Log-probabilities are only valid until the next step.

    Args:
        model: Its parameters must stay at their addresses.
        capture: Captures on the device of the model.
    """

    def __init__(self, model: TranslationModel, capture: GraphCapture | CpuTape) -> None:
        self._model = model
        self._lock = Lock()
        self._capture: GraphCapture | CpuTape | None = capture
        # How often it ran as it is; on a GPU least recently used first, on a CPU the last of its kind.
        self._captured: OrderedDict[Hashable, _CapturedStep | int] = OrderedDict()
        # None: it cannot be recorded.
        self._programs: dict[Hashable, Program | int | None] = {}
        self._started: dict[torch.Size, tuple[Replay, DecoderState]] = {}

    @torch.inference_mode()
    def start(
        self, source: Tensor, *, languages: Tensor | None = None, prompt: Tensor | None = None
    ) -> DecoderState:
        """Encode `source` `[N, S]`, and read prompts `[N, P]`; arguments as in `TranslationModel.start`."""
        count, length = source.shape
        capture, state = self._capture, None
        if capture is None or (isinstance(capture, CpuTape) and count > capture.most):
            return self._model.start(source, languages=languages, prompt=prompt)
        padded = not isinstance(capture, CpuTape)
        longer = torch.nn.functional.pad(source, (0, -length % _LENGTH_STEP), value=self._model.pad_id)
        if isinstance(capture, CpuTape):
            if longer.numel() <= _FEW_TOKENS and languages is None and prompt is None:
                state = self._recorded_start(longer, capture)
        else:
            source = _pad_to_power_of_two(longer)
            if languages is not None and languages.numel() == count:
                languages = _pad_to_power_of_two(languages)
            prompt = None if prompt is None else _pad_to_power_of_two(prompt)
        if state is None:
            state = self._model.start(source, languages=languages, prompt=prompt)
        return CapturedState(**vars(state), padded=padded, count=count)

    def _recorded_start(self, source: Tensor, tape: CpuTape) -> DecoderState | None:
        """`start` without more than sources; None: it is not recorded. Each shape has a record of its own."""
        # A model without an encoder looks at the lengths of its sources.
        if not isinstance(self._model, EncoderDecoder):
            return None
        shape, fixed, made = source.shape, source.clone(), list[DecoderState]()

        def work() -> list[Tensor]:
            with few_shapes():
                made.append(self._model.start(fixed))
            return [fixed, *_tensors(made[0])]

        with self._lock:
            if shape not in self._started:
                program = self._program(shape, tape, lambda _: work, 0, 1)
                replay = None if program is None else program.at(())
                if replay is None:
                    return None
                self._started[shape] = replay, made[0]
            replay, state = self._started[shape]
            replay.tensors[0].copy_(source)
            replay()
            return state.mapped(torch.clone)

    def step(
        self, tokens: Tensor, state: DecoderState, beam: BeamSteps | None = None
    ) -> tuple[Tensor, DecoderState]:
        """Log-probabilities `[rows, V]` of what follows `tokens` `[rows]`.

        With a beam search, several steps where that is possible: see `BeamSteps.taken`.
        """
        if self._capture is None or not isinstance(state, CapturedState):
            return self._model.step(tokens, state)
        index, rows = state.index, tokens.numel()
        if index.used + index.width > index.capacity:
            state = state.ensure_capacity(1 if state.padded else max(1, _ROOM // index.width))
        with self._lock:
            captured = self._captured_step(tokens, state, self._capture)
        if captured is None:
            padded = torch.cat([tokens, tokens[:1].expand(state.rows - rows)])
            log_probs, following = self._model.step(padded, state)
        else:
            if beam is not None and captured.prepare(beam, state.index):
                vectors = self._model.vectors_of(state, beam.steps)
            else:
                beam, vectors = None, self._model.vectors_of(state)
            log_probs, following = captured.replay(vectors, tokens, state, beam)
        return log_probs if rows == state.rows else log_probs[:rows], following

    def _program(
        self, kind: Hashable, tape: CpuTape, make: Callable[[Sizes], Work], axes: int, patience: int
    ) -> Program | None:
        """Recorded work of a kind; None until it ran as it is so often, and where it cannot be recorded."""
        known = self._programs.get(kind, 0)
        if isinstance(known, int):
            try:
                known = Program(tape, make, axes) if known == patience else known + 1
            except (ValueReadError, DeepwireError):  # it reads values, or knows no positions of that size
                known = None
            self._programs[kind] = known
        return known if isinstance(known, Program) else None

    def _captured_step(
        self, tokens: Tensor, state: CapturedState, capture: GraphCapture | CpuTape
    ) -> _CapturedStep | None:
        """The captured step of the shape of this state; None if it is new, or another batch lies there.

        From now on no other batch may lie there.
        """
        captured = state.batch.captured
        if captured is not None and captured.sizes == _sizes(state):
            return captured
        if isinstance(capture, CpuTape):
            recorded = self._recorded_step(tokens, state, capture)
            if recorded is not None:
                recorded.reserve(state.batch)
            return recorded
        shape = _shape(state)
        step = self._captured.get(shape, 0)
        if isinstance(step, _CapturedStep) and not step.is_free_for(state.batch):
            return None
        if step == 1:
            step = _CapturedStep(state, *capture.capture(_step_work(self._model, tokens, state)))
        self._captured[shape] = 1 if step == 0 else step
        self._captured.move_to_end(shape)
        if len(self._captured) > MAX_GRAPHS:
            self._captured.popitem(last=False)
        if not isinstance(step, _CapturedStep):
            return None
        step.reserve(state.batch)
        return step

    def _recorded_step(self, tokens: Tensor, state: CapturedState, tape: CpuTape) -> _CapturedStep | None:
        """The step at the sizes of a state: the last one, where its batch is over, or else a new one."""
        kind, make = _kind(state), partial(_step_work, self._model, tokens, state)
        program, last = self._program(kind, tape, make, 3, PATIENCE), self._captured.get(kind)
        if isinstance(last, _CapturedStep) and last.is_free_for(state.batch) and last.fits(state):
            return last
        memory = state.context.memory
        length, pages = memory[0].bias.size(-1) if memory else 0, state.index.capacity // CAPACITY_STEP
        replay = None if program is None else program.at((state.sentences, length, pages))
        step = None if replay is None else _CapturedStep(state, replay.tensors, replay)
        if step is None or not step.fits(state):
            return None
        self._captured[kind] = step
        return step

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each token of `target_output`, `[B, T]` float32, 0 at PAD."""
        return self._model.score(source, target_input, target_output, languages=languages)

    def log_probs(self, source: Tensor, target_input: Tensor, *, languages: Tensor | None = None) -> Tensor:
        """Log-probabilities `[B, T, V]` of what follows each prefix of `target_input`; without a graph."""
        return self._model.log_probs(source, target_input, languages=languages)

    def source_weights(
        self, source: Tensor, target_input: Tensor, layers: Layers = None, *, languages: Tensor | None = None
    ) -> Mapping[int, Tensor]:
        """See `TranslationModel.source_weights`; without a graph."""
        return self._model.source_weights(source, target_input, layers, languages=languages)

    def restrict(self, first: int, last: int) -> Self:
        """The model with groups `first` to `last` of its decoder alone; ValueError where there are none."""
        return self._with_model(self._model.restrict(first, last), self._capture)

    def with_rounds(self, rounds: int) -> Self:
        """The model whose encoder runs its middle so often; ValueError where it has no recurrent depth."""
        return self._with_model(self._model.with_rounds(rounds), self._capture)

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> Self:
        """The model that steps to `tokens` `[k]` alone; not captured, as each batch has tokens of its own."""
        return self._with_model(self._model.select(tokens, allowed), None)

    def _with_model(self, model: TranslationModel, capture: GraphCapture | CpuTape | None) -> Self:
        other = copy(self)
        other._model, other._capture, other._captured = model, capture, OrderedDict()
        other._programs, other._started = {}, {}
        return other


def _step_work(
    model: TranslationModel, tokens: Tensor, state: DecoderState, sizes: Sizes | None = None
) -> Work:
    """A step on tensors of its own, in the shape of a state, or as it would be at other sizes.

    It gives what is read, log-probabilities, and the tensors of the next state.
    """
    like = (state if sizes is None else _resized(model, state, sizes)).mapped(torch.zeros_like)
    inputs, vectors = _tensors(like), model.vectors_of(like)
    fixed = [] if vectors is None else [torch.empty_like(vectors)]
    tokens, position = tokens.new_zeros(like.rows), tokens.new_zeros(())
    slots = torch.arange(like.index.width, device=tokens.device)
    places = {tensor.untyped_storage().data_ptr() for tensor in inputs}

    def work() -> list[Tensor]:
        index, own = replace(like.index, graph_step=GraphStep(position, slots)), iter(inputs)

        def apart(made: Tensor) -> Tensor:
            # What lies where another one is read would be overwritten before it is copied.
            elsewhere = made is not next(own) and made.untyped_storage().data_ptr() in places
            return made.clone() if elsewhere else made

        with few_shapes():  # the best kernels, and Python waits once for them
            log_probs, after = model.step_at(fixed[0] if fixed else None, tokens, like.at(index))
        return [tokens, position, slots, *fixed, *inputs, log_probs, *map(apart, _tensors(after))]

    return work


def _resized(model: TranslationModel, state: DecoderState, sizes: Sizes) -> DecoderState:
    """A state as this one with so many sentences, subwords of their sources, and pages of its caches."""
    count, length, pages = sizes
    index, languages, width = state.index, state.context.languages, state.rows // state.sentences
    made = model.start(
        torch.ones(count, length, dtype=torch.int64), languages=None if languages is None else languages[:1]
    )
    # Rows that are there before a cache is have caches of their own.
    if index.width == 1:
        made = made.expand(width)
    made = made.ensure_capacity(pages * CAPACITY_STEP - made.index.used)
    if index.width > 1:
        made = made.expand(width)
    if languages is not None and languages.numel() > 1:
        languages = languages[:1].repeat(made.rows)
    skipped = None if index.skipped is None else index.skipped.new_zeros(made.index.groups)
    context = made.context.replace(languages=languages, index=replace(made.index, skipped=skipped))
    return replace(made, context=context)


class _CapturedStep:
    """The captured step of one shape, and the fixed tensors that it reads and writes."""

    def __init__(self, state: CapturedState, tensors: Sequence[Tensor], replay: Callable[[], None]) -> None:
        self.sizes, self._replay = _sizes(state), replay
        self._batch: weakref.ref[_BatchToken] | None = None
        self._tokens, position, slots, *rest = tensors
        self._graph_step = GraphStep(position, slots)
        self._row_slots = torch.arange(state.index.width, device=slots.device)
        count = len(_tensors(state))
        self._vectors = rest.pop(0) if len(rest) > 2 * count + 1 else None
        self._inputs, self._log_probs, made = rest[:count], rest[count], iter(rest[count + 1 :])
        after = state.mapped(lambda _: next(made))
        # Not the state itself, which keeps the batch.
        self._context, self._states = after.context, after.states
        self._moves = self._moved(rest[count + 1 :], state.rows)

    def _moved(self, after: Sequence[Tensor], rows: int) -> Numbers | None:
        """The `moves` of `BeamSteps`; None where it cannot carry these steps out."""
        if not isinstance(self._replay, Replay) or self._replay.code is None:
            return None
        states = (state for state in self._states if not isinstance(state, KeyValueCache))
        of_rows = {id(tensor) for state in states for tensor in state}
        moves = []
        for read, made in zip(self._inputs, after, strict=True):
            alike = read.is_contiguous() and made.is_contiguous() and read.dtype == made.dtype
            # States of rows are reordered on their way to the next step; caches and memory stay in place.
            stays = made is read
            if stays == (id(made) in of_rows) or not alike:
                return None
            if not stays:
                moves.append((made.data_ptr(), read.data_ptr(), made.nbytes // rows))
        return np.array(moves, dtype=np.int64)

    def prepare(self, beam: BeamSteps, index: CacheIndex) -> bool:
        """Tell a beam search of the steps that there is room for; whether it can carry them out."""
        if self._moves is None or index.skipped is not None:
            return False
        beam.tell(
            steps=min(beam.steps, (index.capacity - index.used) // index.width),
            log_probs=self._log_probs,
            columns=self._log_probs.size(1),
            tokens=self._tokens,
            position=self._graph_step.position,
            slots=self._graph_step.slots,
            group=index.width,
            vector=self._vectors,
            mask=None if index.ancestry is None else self._inputs[0],
            capacity=index.capacity,
            moves=self._moves,
            states=len(self._moves),
        )
        return True

    def fits(self, state: DecoderState) -> bool:
        """Whether a state has the shape that is read here."""
        pairs = zip(_tensors(state), self._inputs, strict=True)
        return self.sizes == _sizes(state) and all(each.shape == own.shape for each, own in pairs)

    def is_free_for(self, batch: _BatchToken) -> bool:
        """Whether no other batch lies here."""
        other = None if self._batch is None else self._batch()
        return other is None or other is batch

    def reserve(self, batch: _BatchToken) -> None:
        """No other batch may lie here."""
        self._batch = weakref.ref(batch)

    def _take_over(self, batch: _BatchToken) -> None:
        """The batch lies here now. Others, of other threads, may have the place that it was copied from."""
        before, batch.captured = batch.captured, self
        if before is not None and before is not self:
            before._batch = None

    def replay(
        self, vectors: Tensor | None, tokens: Tensor, state: CapturedState, beam: BeamSteps | None
    ) -> tuple[Tensor, CapturedState]:
        for fixed, present in zip(self._inputs, _tensors(state), strict=True):
            if fixed is not present:
                fixed.copy_(present)
        self._take_over(state.batch)
        self._tokens[: tokens.numel()].copy_(tokens)
        if self._vectors is not None and vectors is not None:
            self._vectors.copy_(vectors if beam is None else vectors[:1])
        index, steps = state.index, 1
        self._graph_step.position.fill_(index.position)
        torch.add(self._row_slots, index.used, out=self._graph_step.slots)
        if beam is None:
            self._replay()
        else:
            steps += cast("Replay", self._replay).search(beam, vectors)
        used, position = index.used + steps * index.width, index.position + steps
        ancestry = self._context.positions.ancestry
        index = replace(index, ancestry=ancestry, used=used, position=position)
        return self._log_probs, replace(
            state, context=self._context.replace(index=index), states=self._states
        )


def _tensors(state: DecoderState) -> list[Tensor]:
    """All tensors of a state, in the order of `DecoderState.mapped`."""
    index, context = state.index, state.context
    found = [*(index.ancestry or ())]
    found += [each for each in (index.skipped, context.languages) if each is not None]
    for leaves in (*(memory.leaves for memory in context.memory), *state.states):
        found += leaves
    return found


def _sizes(state: DecoderState) -> tuple[int, ...]:
    """The sizes of the shape of a state that may change within a batch."""
    index = state.index
    return state.sentences, index.groups, index.width, index.capacity


def _kind(state: DecoderState) -> Hashable:
    """All of the shape of a state but its sizes."""
    index, languages = state.index, state.context.languages
    tensors = tuple((tensor.dim(), tensor.dtype) for tensor in _tensors(state))
    each = languages is not None and languages.numel() > 1
    return index.groups // state.sentences, index.width, index.skipped is None, each, tensors


def _shape(state: DecoderState) -> Hashable:
    """The shape that states must share to be read by the same graph."""
    return *_sizes(state), *((tensor.shape, tensor.dtype) for tensor in _tensors(state))


def _pad_to_power_of_two(sentences: Tensor) -> Tensor:
    """`[N, ...]` with the first repeated until there are a power of two."""
    count = sentences.size(0)
    more = (1 << (count - 1).bit_length()) - count
    return torch.cat([sentences, sentences[:1].expand(more, *sentences.shape[1:])]) if more else sentences
