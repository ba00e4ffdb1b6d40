"""A model as functions of tensors alone, for formats that hold graphs: encoder, start and step.

    encoder: source ids -> what the encoder gives
    start:   what the encoder gives -> memory and the first state of the decoder
    step:    last tokens, position, memory and state -> log-probabilities and the next state

A decoder alone, which reads the source itself, and a language model have one for the first two:

    prompt:  source ids and first target ids -> log-probabilities behind them and the state

The state of a decoder is a value, so all of it goes in and comes out. Hypotheses have an axis of their own:
tokens are `[N, W]` and every tensor of the state is `[N, W, ...]`, W hypotheses of N sentences; the memory is
`[N, ...]` and serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor, nn

from deepwire.model.context import Context, Memory
from deepwire.model.decoder_only import LanguageModel
from deepwire.model.decoder_state import DecoderState
from deepwire.model.encoder_decoder import EncoderDecoder
from deepwire.model.kv_cache import CacheIndex, KeyValueCache
from deepwire.model.mixers.mixer import State
from deepwire.model.translation_model import TranslationModel

Tensors = tuple[Tensor, ...]

SENTENCES, SOURCE, HYPOTHESES, POSITIONS = "sentences", "source", "hypotheses", "positions"
PROMPT = "prompt"
"""The sizes that may change from call to call: N, S, W, the positions read so far, and P of a prompt."""
_TUPLES = frozenset({"encoded", "memory", "states"})
# Primes, no two alike: a tracer that meets a width or a stride of the same size takes the two for one.
_SMALL = {SENTENCES: 13, SOURCE: 17, HYPOTHESES: 11, POSITIONS: 3, PROMPT: 7}
_LARGE = {SENTENCES: 19, SOURCE: 23, HYPOTHESES: 29, POSITIONS: 5, PROMPT: 31}


@dataclass(frozen=True)
class GrowingCacheIndex(CacheIndex):
    """The position of a decoder whose caches grow; every row is a group.

    Attributes:
        number: The position as a tensor, `[]` int64, and `used` the positions that caches hold before it.
    """

    number: Tensor | None = None

    @property
    def current_position(self) -> int | Tensor:
        """The position, to calculate with."""
        return self.position if self.number is None else self.number

    @property
    def bias(self) -> Tensor:
        """Nothing is hidden: a row's cache holds its own past alone, `[1, 1, 1, 1]`."""
        return torch.zeros(1, 1, 1, 1)

    @property
    def distance(self) -> Tensor:
        """Position of each cached position minus that of the row, `[1, 1, 1, t + 1]`."""
        return (torch.arange(self.used + 1) - self.used)[None, None, None]

    def store(self, cache: KeyValueCache, keys: Tensor, values: Tensor) -> KeyValueCache:
        """The cache with one position more."""
        return KeyValueCache(torch.cat((cache.keys, keys), 2), torch.cat((cache.values, values), 2))

    def allocate_slots(self) -> CacheIndex:
        """As it is: there are no slots to fill."""
        return self

    def advance(self) -> CacheIndex:
        """Before the next position."""
        number = None if self.number is None else self.number + 1
        return replace(self, position=self.position + 1, used=self.used + 1, number=number)


@dataclass(frozen=True)
class Leaf:
    """A tensor that goes into a graph or comes out of it.

    Attributes:
        name: In the graph and in the manifest.
        shape: Numbers, and the names of sizes that may change.
        dtype: `int64` or `float32`.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True)
class Graph:
    """One function of tensors.

    Attributes:
        name: encoder, start, prompt or step.
        module: What computes it, called with `arguments`.
        arguments: An example of each argument, single tensors or tuples of them.
        inputs: The tensors of all arguments, in order; `outputs` those of the result.
    """

    name: str
    module: nn.Module
    arguments: tuple[Tensor | Tensors | None, ...]
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]


class _Encoder(nn.Module):
    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, languages: Tensor | None) -> Tensors:
        """Read `[N, S]`: results, padding bias and what travelled beside the stream."""
        embedding = self.model.source_embedding
        vectors = embedding.vectors_at(torch.arange(source.size(1)))
        embedded = embedding.placed(source, vectors, languages)
        results, side, context = self.model.encode_embedded(embedded, source, languages)
        assert context.padding is not None
        self.counts = len(results), len(side)
        return _distinct(*results, context.padding, *side)


class _Start(nn.Module):
    def __init__(self, model: EncoderDecoder, results: int) -> None:
        super().__init__()
        self.model, self.results = model, results

    def forward(self, encoded: Tensors, languages: Tensor | None) -> Tensors:
        """Begin to decode: the memory, and a state of one hypothesis a sentence."""
        _are_sizes(encoded, encoded[0].size(0))
        results, padding, side = encoded[: self.results], encoded[self.results], encoded[self.results + 1 :]
        self.example = state = self.model.start_from(results, side, Context(languages, padding))
        return _distinct(
            *chain.from_iterable(each.leaves for each in state.context.memory),
            *(leaf.unsqueeze(1) for leaf in chain.from_iterable(state.states)),
        )


class _Prompt(nn.Module):
    """Sources `[N, S]` and first target tokens `[N, P]`, read in one pass without padding."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor | None, tokens: Tensor, languages: Tensor | None) -> Tensors:
        """Log-probabilities `[N, 1, V]` of what follows, and a state of one hypothesis a sentence.

        A language model reads no source.
        """
        model = self.model
        parts = [tokens] if source is None else [source, tokens]
        sentences, length = parts[0].size(0), sum(tokens.size(1) for tokens in parts)
        _are_sizes(tuple(parts), sentences)
        vectors = model.target_embedding.vectors_at(torch.arange(length))
        embedded, first = [], 0
        sides = model.source_embedding, model.target_embedding
        for embedding, part in zip(sides[-len(parts) :], parts, strict=True):
            positions = None if vectors is None else vectors[first : first + part.size(1)]
            embedded.append(embedding.placed(part, positions, languages))
            first += part.size(1)
        x = torch.cat(embedded, 1)
        context = Context(languages, index=GrowingCacheIndex(sentences, length=length))
        state = DecoderState(context, model.decoder.init_states(sentences, x[:, :1]), sentences)
        log_probs, self.example = model.read_at(x, state)
        flat = (log_probs, *chain.from_iterable(self.example.states))
        return _distinct(*(leaf.unsqueeze(1) for leaf in flat))


class _Step(nn.Module):
    """One step, for memory and states of the kinds and sizes of `example`."""

    def __init__(self, model: TranslationModel, example: DecoderState) -> None:
        super().__init__()
        self.model = model
        self.layout = [(isinstance(state, KeyValueCache), len(state)) for state in example.states]

    def forward(
        self, tokens: Tensor, position: Tensor, memory: Tensors, states: Tensors, languages: Tensor | None
    ) -> Tensors:
        """Log-probabilities `[N, W, V]` of what follows the tokens `[N, W]`, and the next state."""
        sentences, width = tokens.shape
        _are_sizes(memory, sentences)
        _are_sizes(states, sentences, width)
        rest = iter(leaf.flatten(0, 1) for leaf in states)
        old: list[State] = []
        for cached, count in self.layout:
            leaves = tuple(next(rest) for _ in range(count))
            old.append(KeyValueCache(*leaves) if cached else leaves)
        used = next((state[0].size(2) for state in old if isinstance(state, KeyValueCache)), 0)
        context = Context(
            None if languages is None else languages.unsqueeze(1).expand(-1, width).flatten(),
            memory=tuple(
                Memory(*leaves) for leaves in zip(*(memory[part::3] for part in range(3)), strict=True)
            ),
            index=GrowingCacheIndex(sentences * width, used=used, number=position),
        )
        state = DecoderState(context, tuple(old), sentences)
        vectors = self.model.target_embedding.vectors_at(position.unsqueeze(0))
        log_probs, following = self.model.step_at(vectors, tokens.flatten(), state)
        flat = (log_probs, *chain.from_iterable(following.states))
        return _distinct(*(leaf.reshape(*tokens.shape, *leaf.shape[1:]) for leaf in flat))


def _are_sizes(tensors: Tensors, *sizes: int) -> None:
    """Tell who traces that these are the first sizes of all; else each is a number of its own to it."""
    for tensor in tensors:
        for axis, size in enumerate(sizes):
            torch._check(tensor.size(axis) == size)  # type: ignore[no-untyped-call]


def _distinct(*tensors: Tensor) -> Tensors:
    """The tensors, with copies of those that come again: a result of a graph has one name."""
    seen: set[int] = set()
    results = []
    for tensor in tensors:
        results.append(tensor.clone() if id(tensor) in seen else tensor)
        seen.add(id(tensor))
    return tuple(results)


def decoding_graphs(model: TranslationModel) -> tuple[Graph, ...]:
    """The graphs of a model on the CPU, in float32 and evaluation mode.

    Which axes may change is seen by running a short translation in two sizes.
    """
    small, large = _Example(model, _SMALL), _Example(model, _LARGE)

    def leaves(tensors: str) -> tuple[Leaf, ...]:
        of_small, of_large = small.tensors[tensors], large.tensors[tensors]
        return tuple(
            Leaf(name, _shape(tensor, of_large[name]), str(tensor.dtype).removeprefix("torch."))
            for name, tensor in of_small.items()
        )

    def graph(name: str, inputs: Sequence[str], outputs: str) -> Graph:
        arguments: list[Tensor | Tensors | None] = []
        for each in inputs:
            tensors = tuple(small.tensors[each].values())
            arguments += [tensors] if each in _TUPLES else tensors or [None]
        module = small.modules[name]
        named = tuple(leaf for each in inputs for leaf in leaves(each))
        return Graph(name, module, tuple(arguments), named, leaves(outputs))

    return tuple(graph(name, *flow) for name, flow in small.flows.items())


class _Example:
    """A translation of sentences that mean nothing, in some sizes: the tensors of all graphs by name."""

    def __init__(self, model: TranslationModel, sizes: Mapping[str, int]) -> None:
        self.modules: dict[str, nn.Module] = {}
        self.tensors: dict[str, Mapping[str, Tensor]] = {}
        self.model, self.sizes, self.word = model, sizes, model.pad_id + 1
        sentences = sizes[SENTENCES]
        self.languages = torch.zeros(sentences, dtype=torch.int64) if model.languages else None
        self.tensors["languages"] = {} if self.languages is None else {"languages": self.languages}
        # What each graph reads and what it gives, by the names of tensors.
        self.flows: dict[str, tuple[Sequence[str], str]] = {}
        with torch.no_grad():
            if isinstance(model, EncoderDecoder):
                self._translate(model)
            else:
                self._continue()

    def _words(self, size: str) -> Tensor:
        return torch.full((self.sizes[SENTENCES], self.sizes[size]), self.word)

    def _step(self, example: DecoderState, memory: Tensors, states: Tensors, positions: int) -> None:
        """Steps from the states `[N, 1, ...]` of a decoder on, until so many positions have been read."""
        self.flows["step"] = ("tokens", "memory", "states", "languages"), "following"
        self.modules["step"] = step = _Step(self.model, example)
        states = tuple(leaf.expand(-1, self.sizes[HYPOTHESES], *leaf.shape[2:]) for leaf in states)
        tokens = self._words(HYPOTHESES)
        for position in range(positions, self.sizes[POSITIONS] + 1):
            before, number = states, torch.tensor(position)
            log_probs, *following = step(tokens, number, memory, before, self.languages)
            states = tuple(following)
        of_memory, of_states = _state_names(example)
        new = dict(zip((f"next_{name}" for name in of_states), states, strict=True))
        self.tensors |= {
            "tokens": {"tokens": tokens, "position": number},
            "memory": dict(zip(of_memory, memory, strict=True)),
            "states": dict(zip(of_states, before, strict=True)),
            "following": {"log_probs": log_probs, **new},
        }

    def _translate(self, model: EncoderDecoder) -> None:
        self.flows["encoder"] = ("source", "languages"), "encoded"
        self.flows["start"] = ("encoded", "languages"), "started"
        source = self._words(SOURCE)
        encoder = _Encoder(model)
        encoded = encoder(source, self.languages)
        results, carried = encoder.counts
        start = _Start(model, results)
        started = start(encoded, self.languages)
        self.modules |= {"encoder": encoder, "start": start}
        of_encoder = [*(f"encoded_{number}" for number in range(results)), "padding"]
        of_encoder += [f"carried_{number}" for number in range(carried)]
        of_memory, of_states = _state_names(start.example)
        self.tensors |= {
            "source": {"source": source},
            "encoded": dict(zip(of_encoder, encoded, strict=True)),
            "started": dict(zip([*of_memory, *of_states], started, strict=True)),
        }
        self._step(start.example, started[: len(of_memory)], started[len(of_memory) :], 0)

    def _continue(self) -> None:
        self.flows["prompt"] = ("source", "prompt", "languages"), "started"
        prompt = _Prompt(self.model)
        self.modules["prompt"] = prompt
        source = None if isinstance(self.model, LanguageModel) else self._words(SOURCE)
        tokens = self._words(PROMPT)
        log_probs, *states = prompt(source, tokens, self.languages)
        _, of_states = _state_names(prompt.example)
        started = dict(zip(of_states, states, strict=True))
        self.tensors |= {
            "source": {} if source is None else {"source": source},
            "prompt": {"tokens": tokens},
            "started": {"log_probs": log_probs, **started},
        }
        short = None if source is None else source[:, :1]
        _, *states = prompt(short, tokens[:, :1], self.languages)
        self._step(prompt.example, (), tuple(states), 1 if short is None else 2)


def _state_names(state: DecoderState) -> tuple[list[str], list[str]]:
    memory = _names("memory", [("key", "value", "bias")] * len(state.context.memory))
    return memory, _names("state", [range(len(each)) for each in state.states])


def _names(kind: str, parts: Sequence[Iterable[object]]) -> list[str]:
    return [f"{kind}_{number}_{part}" for number, each in enumerate(parts) for part in each]


def _shape(small: Tensor, large: Tensor) -> tuple[int | str, ...]:
    """The sizes of a tensor: a number where both translations have the same, else the name of what it is."""
    names = {(_SMALL[name], _LARGE[name]): name for name in _SMALL}
    names[_SMALL[POSITIONS] + 1, _LARGE[POSITIONS] + 1] = f"{POSITIONS} + 1"
    names[_SMALL[SOURCE] + _SMALL[PROMPT], _LARGE[SOURCE] + _LARGE[PROMPT]] = f"{SOURCE} + {PROMPT}"
    pairs = zip(small.shape, large.shape, strict=True)
    return tuple(size if size == larger else names[size, larger] for size, larger in pairs)
