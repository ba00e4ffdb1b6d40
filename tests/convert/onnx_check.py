"""How far the three graphs of a model are from the model itself, over sentences, lengths and hypotheses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from choices import LANGUAGES, SOCKETS, choices, model_settings
from test_product import refused

from deepwire.convert.decoding_graphs import Graph, decoding_graphs
from deepwire.convert.parity import ALLOWED_ROUNDING, in_float64
from deepwire.convert.translate import Begun
from deepwire.errors import UsageError
from deepwire.model.decoder_state import DecoderState
from deepwire.model.encoder_decoder import EncoderDecoder
from deepwire.model.stack_spec import SIDES
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import LANGUAGES as COUNT
from deepwire.testing import SIZE, small_model

# Nobody traces these numbers of sentences, subwords and hypotheses.
SIZES = ((1, 1, 1), (1, 6, 2), (4, 7, 3))
STEPS = 4
ALLOWED = 1e-4
Arrays = dict[str, np.ndarray]


class Stepped(Protocol):
    """What runs the graphs; `deepwire.convert.translate.GraphModel` is one."""

    def start(self, source: np.ndarray, languages: np.ndarray | None) -> tuple[Arrays, Arrays]: ...

    def read(self, source: np.ndarray, tokens: np.ndarray, languages: np.ndarray | None) -> Begun: ...

    def step(
        self, tokens: np.ndarray, position: int, memory: Arrays, state: Arrays
    ) -> tuple[np.ndarray, Arrays]: ...


class Eager:
    """The graphs as PyTorch runs them, untraced."""

    def __init__(self, graphs: tuple[Graph, ...]) -> None:
        self.graphs = {graph.name: graph for graph in graphs}

    def run(self, name: str, tensors: Arrays) -> Arrays:
        graph = self.graphs[name]
        left = iter([torch.from_numpy(np.ascontiguousarray(tensors[leaf.name])) for leaf in graph.inputs])
        arguments = [
            tuple(next(left) for _ in example)
            if isinstance(example, tuple)
            else example
            if example is None
            else next(left)
            for example in graph.arguments
        ]
        with torch.no_grad():
            results = graph.module(*arguments)
        return {leaf.name: each.numpy() for leaf, each in zip(graph.outputs, results, strict=True)}

    def start(self, source: np.ndarray, languages: np.ndarray | None) -> tuple[Arrays, Arrays]:
        given = {} if languages is None else {"languages": languages}
        started = self.run("start", {**self.run("encoder", {"source": source, **given}), **given})
        memory = {name: array for name, array in started.items() if name.startswith("memory")}
        return {**memory, **given}, {name: started[name] for name in started if name not in memory}

    def read(self, source: np.ndarray, tokens: np.ndarray, languages: np.ndarray | None) -> Begun:
        given = {} if languages is None else {"languages": languages}
        state = self.run("prompt", {"source": source, "tokens": tokens, **given})
        return Begun(state.pop("log_probs"), given, state, source.shape[1] + tokens.shape[1])

    def step(
        self, tokens: np.ndarray, position: int, memory: Arrays, state: Arrays
    ) -> tuple[np.ndarray, Arrays]:
        log_probs, *new = self.run(
            "step", {"tokens": tokens, "position": np.array(position), **memory, **state}
        ).values()
        return log_probs, dict(zip(state, new, strict=True))


def largest_difference(model: TranslationModel, other: Stepped) -> float:
    """Of a log-probability, over batches of all `SIZES` whose hypotheses are reordered after every step."""
    return max(float(np.abs(found - expected).max()) for expected, found in _log_probs(model, other))


def rounding(model: TranslationModel) -> float:
    """The largest difference of a log-probability in float32 and in float64, both of PyTorch."""

    def log_probs(of: TranslationModel) -> list[np.ndarray]:
        return [expected for expected, _ in _log_probs(of, Eager(decoding_graphs(of)))]

    with in_float64(model) as exact:
        right = log_probs(exact)
    return max(float(np.abs(one - other).max()) for one, other in zip(log_probs(model), right, strict=True))


def most_allowed(model: TranslationModel, difference: float) -> float:
    """What ONNX may differ by; if it is more than `ALLOWED`, ten times the rounding, as exports may."""
    return ALLOWED if difference <= ALLOWED else max(ALLOWED, ALLOWED_ROUNDING * rounding(model))


Pair = tuple[np.ndarray, np.ndarray]


def _log_probs(model: TranslationModel, other: Stepped) -> Iterator[Pair]:
    """Of every step of both."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for sizes in SIZES:
            yield from _of_batch(model, other, *sizes, generator)


def _of_batch(
    model: TranslationModel,
    other: Stepped,
    sentences: int,
    length: int,
    width: int,
    generator: torch.Generator,
) -> Iterator[Pair]:
    languages = torch.randint(0, COUNT, (sentences,), generator=generator) if model.languages else None
    told = None if languages is None else languages.numpy()
    begin = _begun if isinstance(model, EncoderDecoder) else _begun_alone
    (expected, state), (found, memory, theirs, first) = begin(
        model, other, sentences, length, languages, told, generator
    )
    rows = np.arange(sentences)[:, None]
    for position in range(STEPS):
        assert found.shape == (sentences, found.shape[1], expected.size(1))
        yield expected.numpy(), found.reshape(expected.shape)
        parents = torch.zeros(sentences, width, dtype=torch.int64)
        if position == 0:
            state = state.expand(width)
        else:
            parents = torch.randint(0, width, parents.shape, generator=generator)
            state = state.reorder((parents + width * torch.arange(sentences)[:, None]).flatten())
        theirs = {name: array[rows, parents.numpy()] for name, array in theirs.items()}
        tokens = torch.randint(1, SIZE, (sentences, width), generator=generator)
        expected, state = model.step(tokens.flatten(), state)
        found, theirs = other.step(tokens.numpy(), first + position, memory, theirs)


Ours = tuple[torch.Tensor, DecoderState]
Settings = tuple[int, int, torch.Tensor | None, np.ndarray | None, torch.Generator]


def _begun(model: TranslationModel, other: Stepped, *given: *Settings) -> tuple[Ours, Begun]:
    """After BOS, of sources padded on the right."""
    sentences, length, languages, told, generator = given
    source = torch.randint(4, SIZE, (sentences, length), generator=generator)
    for row in range(1, sentences):
        source[row, length - row :] = model.pad_id
    tokens = torch.ones(sentences, 1, dtype=torch.int64)
    ours = model.step(tokens.flatten(), model.start(source, languages=languages))
    memory, state = other.start(source.numpy(), told)
    log_probs, state = other.step(tokens.numpy(), 0, memory, state)
    return ours, Begun(log_probs, memory, state, 1)


def _begun_alone(model: TranslationModel, other: Stepped, *given: *Settings) -> tuple[Ours, Begun]:
    """After a source, of a model that has one, and some words of the target."""
    sentences, length, languages, told, generator = given
    read = length if model.source_vocabulary else 0
    source = torch.randint(4, SIZE, (sentences, read), generator=generator)
    tokens = torch.randint(1, SIZE, (sentences, 1 + length // 4), generator=generator)
    begun = model.start(source, languages=languages, prompt=tokens[:, :-1])
    return model.step(tokens[:, -1], begun), other.read(source.numpy(), tokens.numpy(), told)


def in_onnx(model: TranslationModel, folder: Path, *, int8: bool = False) -> Stepped:
    """The model as onnxruntime runs it."""
    from deepwire.convert.graph_formats import round_weights, write_onnx
    from deepwire.convert.translate import GraphModel

    graphs = decoding_graphs(model)
    described = {}
    for graph in graphs:
        file = folder / f"{graph.name}.onnx"
        write_onnx(graph, file)
        if int8:
            round_weights(file)
        described[graph.name] = {
            "file": file.name,
            "inputs": [asdict(leaf) for leaf in graph.inputs],
            "outputs": [asdict(leaf) for leaf in graph.outputs],
        }
    return GraphModel(folder, {"graphs": described})


def drawn(seed: int, layers: int = 2) -> Mapping[str, object]:
    """The settings of a model with any choice at every socket of both sides, from all that fit each other."""
    generator = random.Random(seed)
    while True:
        encoder, decoder = (
            {"layers": layers, **{socket: generator.choice(choices(socket, side)) for socket in SOCKETS}}
            for side in SIDES
        )
        wanted = model_settings(encoder, decoder, generator.choice(LANGUAGES))
        if refused(wanted) is None:
            return wanted


def drawn_alone(seed: int, layers: int = 2) -> Mapping[str, object]:
    """Likewise of a decoder-only model."""
    generator = random.Random(seed)
    while True:
        decoder = {socket: generator.choice(choices(socket, "decoder")) for socket in SOCKETS}
        languages, positions = (
            generator.choice(LANGUAGES),
            generator.choice(["learned", "sinusoidal", "rotary"]),
        )
        wanted = {
            "architecture": "decoder_only",
            "decoder": {"layers": layers, **decoder},
            "positions": positions,
            **({} if languages is None else {"languages": languages}),
        }
        try:
            small_model(wanted)
        except UsageError:
            continue
        return wanted
