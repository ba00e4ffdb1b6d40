"""How large a model's signals and gradients are, place by place in depth, on some batches.

The size of a tensor is the root of the mean square (rms) of its numbers at real tokens; padding is left out.
The sockets show where their signals are: whatever mixer, connection, aggregation or fusion a stack has, its
loop reads and writes through the connection, and there a tap listens.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deepwire.lab.subject.model_and_text import PairBatch
from deepwire.model.connections.connection import Call, Connection, ConnectionWrapper, DepthState
from deepwire.model.context import Context
from deepwire.model.embedding import Embedding
from deepwire.model.layer_ownership import evaluating
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.training.device import DeviceBatch
from deepwire.training.extras import layers_of


class Signal(NamedTuple):
    """A signal of a model.

    Attributes:
        side: Whose it is: encoder or decoder.
        kind: Of a stack ``token part``, ``position part``, ``embedding``, ``results``; ``logits``; of a layer
            ``enters``, ``output``, ``output gradient``; of a call ``reads``, ``gives``.
        number: Which layer or call, from 0; 0 where there is one only.
    """

    side: Side
    kind: str
    number: int = 0


@dataclass
class SquareSum:
    """The sum of the squares of numbers, and how many they are."""

    squares: float = 0.0
    count: int = 0

    def add(self, numbers: Tensor) -> None:
        """Take in numbers of any shape."""
        self.squares += float(numbers.detach().double().square().sum())
        self.count += numbers.numel()

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return math.sqrt(self.squares / self.count) if self.count else math.nan


@dataclass
class SignalSizes:
    """Sizes of one model.

    Attributes:
        signals: By signal. Gradients are those of the loss summed over target tokens, so that they do not
            depend on the number of sentences.
        parameters: rms of the parameters of each layer, by ``encoder.1``, ``encoder.rest``, ``other``.
        gradients: rms of the gradient of the loss per target token with respect to them.
        loss: Smoothed loss per target token, nats.
    """

    signals: dict[Signal, float] = field(default_factory=dict)
    parameters: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, float] = field(default_factory=dict)
    loss: float = math.nan


def signal_sizes(
    model: TranslationModel,
    batches: Iterable[DeviceBatch],
    smoothing: tuple[float, SmoothingForm] = (0.0, "uniform_wrong"),
) -> SignalSizes:
    """Let a model read batches forwards and backwards, without dropout, and measure its signals.

    The model is as it was afterwards, but its parameters have no gradients.
    """
    sums: dict[Signal, SquareSum] = defaultdict(SquareSum)
    loss, tokens = 0.0, 0
    model.zero_grad()
    with evaluating(model), torch.enable_grad():
        for batch in batches:
            smoothed, count = _read(model, batch, smoothing, sums)
            loss, tokens = loss + smoothed, tokens + count
    sizes = SignalSizes({signal: each.rms for signal, each in sums.items()}, loss=loss / max(tokens, 1))
    for name, parameters in layers_of(model):
        of_parameters, of_loss = SquareSum(), SquareSum()
        for parameter in parameters:
            of_parameters.add(parameter)
            if parameter.grad is not None:
                of_loss.add(parameter.grad / tokens)
        if of_parameters.count:
            sizes.parameters[name], sizes.gradients[name] = of_parameters.rms, of_loss.rms
    model.zero_grad()
    return sizes


@torch.no_grad()
def signal_values(model: TranslationModel, batch: DeviceBatch | PairBatch) -> dict[Signal, Tensor]:
    """The signals themselves at the real tokens of one batch, `[tokens, ...]`, without dropout.

    Of several results of a stack the first is taken.
    """
    values: dict[Signal, Tensor] = {}
    with evaluating(model):
        read = _Pass(model, batch)
        for signal, tensor in read.seen():
            values.setdefault(signal, tensor)
    return values


def _read(
    model: TranslationModel,
    batch: DeviceBatch,
    smoothing: tuple[float, SmoothingForm],
    sums: dict[Signal, SquareSum],
) -> tuple[float, int]:
    """Read one batch; returns the summed loss and its target tokens."""
    read = _Pass(model, batch)
    loss = read.model.head.loss(read.results, batch.target_output, *smoothing, batch.languages)
    torch.autograd.backward(loss.smoothed)
    with torch.no_grad():
        for signals in (_parts_of_embedding(model, batch), read.seen(), read.gradients()):
            for signal, tensor in signals:
                sums[signal].add(tensor)
        for result in read.results:
            for logits in _logits(read.model, result, read.target_words, batch.languages):
                sums[Signal("decoder", "logits")].add(logits)
    return float(loss.smoothed.detach()), int(loss.tokens)


class _Pass:
    """A model, which shares its parameters with the one given, that read a batch with taps at connections.

    `words` are the real tokens of those that a stack reads, `target_words` those of the target, `[B, T]`.
    """

    def __init__(self, model: TranslationModel, batch: DeviceBatch | PairBatch) -> None:
        inputs = model.reads(batch.source, batch.target_input)
        self.words = {side: tokens != model.pad_id for side, tokens in inputs.items()}
        self.target_words = batch.target_input != model.pad_id
        stacks = model.stacks()
        self._taps = {side: ConnectionTap(stack.connection) for side, stack in stacks.items()}
        tapped = {side: stack.with_parts(connection=self._taps[side]) for side, stack in stacks.items()}
        self.model = model.with_stacks(**tapped)
        with _memory_of(self.model) as memory:
            self.results = self.model.decode(batch.source, batch.target_input, languages=batch.languages)
        self._left: dict[Side, Sequence[Tensor]] = {"encoder": memory, "decoder": self.results}

    def seen(self) -> Iterator[tuple[Signal, Tensor]]:
        """The signals at the taps and the results of the stacks, at real tokens."""
        for side, tap in self._taps.items():
            for kind, number, tensor in tap.seen:
                yield Signal(side, kind, number), tensor[self.words[side]]
            left = self.target_words if side == "decoder" else self.words[side]
            for tensor in self._left[side]:
                yield Signal(side, "results"), tensor[left]

    def gradients(self) -> Iterator[tuple[Signal, Tensor]]:
        """Gradients at the outputs of layers, after a backward pass."""
        for side, tap in self._taps.items():
            for kind, number, tensor in tap.seen:
                if kind == "output" and tensor.grad is not None:
                    yield Signal(side, "output gradient", number), tensor.grad[self.words[side]]


def _logits(
    model: TranslationModel, result: Tensor, words: Tensor, languages: Tensor | None
) -> Iterator[Tensor]:
    """The logits `[n, V]` of the words of each sentence in turn: those of a whole batch may not fit."""
    each = [None] * len(result) if languages is None else torch.split(languages.expand(len(result)), 1)
    for row, real, language in zip(torch.split(result, 1), torch.split(words, 1), each, strict=True):
        yield model.head.logits(row, language)[real]


def _parts_of_embedding(model: TranslationModel, batch: DeviceBatch) -> Iterator[tuple[Signal, Tensor]]:
    """The parts of tokens and of positions at real tokens, before norm and dropout."""
    sides: tuple[tuple[Side, Embedding, Tensor], ...] = (
        (next(iter(model.stacks())), model.source_embedding, batch.source),
        ("decoder", model.target_embedding, batch.target_input),
    )
    for side, embedding, tokens in sides:
        words, of_tokens = tokens != model.pad_id, embedding.of_tokens(tokens, batch.languages)
        yield Signal(side, "token part"), of_tokens[words]
        positions = embedding.vectors(0, tokens.size(1))
        if positions is not None:
            yield Signal(side, "position part"), positions.expand_as(of_tokens)[words]


class ConnectionTap(ConnectionWrapper):
    """A connection that keeps what it sees in a pass, in order.

    Attributes:
        seen: Names as in `Signal`, the number of the call or layer, and the tensor; ``output`` keeps its
            gradient where one is taken.
    """

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.seen: list[tuple[str, int, Tensor]] = []

    def start(self, x: Tensor, context: Context) -> DepthState:
        """As before; in an encoder with rounds, only the first of its parts begins with the embedding."""
        if not self.seen:
            self.seen.append(("embedding", 0, x))
        return self.inner.start(x, context)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """As before."""
        if index == 0 or self.calls[index - 1].closes:
            self.seen.append(("enters", self.calls[index].layer, self.inner.stream(state)))
        read = self.inner.read(state, index, context)
        self.seen.append(("reads", index, read))
        return read

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """As before."""
        self.seen.append(("gives", index, output))
        state = self.inner.write(state, index, read, output, context)
        if self.calls[index].closes:
            x = self.inner.stream(state)
            if x.requires_grad:
                x.retain_grad()
            self.seen.append(("output", self.calls[index].layer, x))
            state = self.inner.with_stream(state, x)  # so that what follows is made of it
        return state


def call_names(calls: Sequence[Call]) -> list[str]:
    """Names of the calls of a stack; where a layer makes a call several times, with their numbers."""
    kinds = [(call.layer, call.kind.replace("_", "-")) for call in calls]
    often, made = Counter(kinds), Counter[tuple[int, str]]()
    names = []
    for layer, kind in kinds:
        made[layer, kind] += 1
        names.append(f"{kind} ({made[layer, kind]})" if often[layer, kind] > 1 else kind)
    return names


@contextmanager
def _memory_of(model: TranslationModel) -> Iterator[list[Tensor]]:
    """A list that receives what the decoder is given of the encoder."""
    memory: list[Tensor] = []

    def from_encoder(_module: nn.Module, _inputs: object, output: tuple[tuple[Tensor, ...], object]) -> None:
        memory.extend(output[0])

    def from_transform(_module: nn.Module, _inputs: object, output: tuple[Tensor, ...]) -> None:
        memory.extend(output)

    if "encoder" not in model.stacks():
        yield memory
        return
    if model.transform is None:
        handle = model.stack("encoder").register_forward_hook(from_encoder)
    else:
        handle = model.transform.register_forward_hook(from_transform)
    try:
        yield memory
    finally:
        handle.remove()
