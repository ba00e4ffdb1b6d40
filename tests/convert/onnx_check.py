"""How far the three graphs of a model are from the model itself, over sentences, lengths and hypotheses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch
from choices import LANGUAGES, SOCKETS, choices, model_settings
from test_product import refused

from deepwire.convert.decoding_graphs import Graph, decoding_graphs
from deepwire.convert.parity import ALLOWED_ROUNDING, in_float64
from deepwire.convert.translate import Begun, GraphModel
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


class Eager(GraphModel):
    """The graphs as PyTorch runs them, untraced."""

    def __init__(self, graphs: tuple[Graph, ...]) -> None:
        self.names = {graph.name: [leaf.name for leaf in graph.outputs] for graph in graphs}
        self.inputs = {graph.name: [leaf.name for leaf in graph.inputs] for graph in graphs}
        self.sessions = {graph.name: partial(_run, graph) for graph in graphs}
        self.memory = {name for name in self.names.get("start", ()) if name.startswith("memory")}


def _run(graph: Graph, tensors: Arrays) -> list[np.ndarray]:
    left = iter([torch.from_numpy(np.ascontiguousarray(tensor)) for tensor in tensors.values()])
    arguments = [
        tuple(next(left) for _ in part) if isinstance(part, tuple) else part if part is None else next(left)
        for part in graph.arguments
    ]
    with torch.no_grad():
        return [each.numpy() for each in graph.module(*arguments)]


def largest_difference(model: TranslationModel, other: GraphModel) -> float:
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


def _log_probs(model: TranslationModel, other: GraphModel) -> Iterator[Pair]:
    """Of every step of both."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for sizes in SIZES:
            yield from _of_batch(model, other, *sizes, generator)


def _of_batch(
    model: TranslationModel,
    other: GraphModel,
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


def _begun(model: TranslationModel, other: GraphModel, *given: *Settings) -> tuple[Ours, Begun]:
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


def _begun_alone(model: TranslationModel, other: GraphModel, *given: *Settings) -> tuple[Ours, Begun]:
    """After a source, of a model that has one, and some words of the target."""
    sentences, length, languages, told, generator = given
    read = length if model.source_vocabulary else 0
    source = torch.randint(4, SIZE, (sentences, read), generator=generator)
    tokens = torch.randint(1, SIZE, (sentences, 1 + length // 4), generator=generator)
    begun = model.start(source, languages=languages, prompt=tokens[:, :-1])
    return model.step(tokens[:, -1], begun), other.read(source.numpy(), tokens.numpy(), told)


def in_onnx(model: TranslationModel, folder: Path, *, int8: bool = False) -> GraphModel:
    """The model as onnxruntime runs it."""
    from deepwire.convert.graph_formats import round_weights, write_onnx

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
