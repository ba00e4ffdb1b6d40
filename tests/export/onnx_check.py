"""How far the three graphs of a model are from the model itself, over sentences, lengths and hypotheses."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from choices import LANGUAGES, combinations, model_settings
from test_product import refused

from deepwire.export.decoding_graphs import Graph, decoding_graphs
from deepwire.model.encoder_decoder import EncoderDecoder
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import LANGUAGES as COUNT
from deepwire.testing import SIZE, small_model

# Nobody traces these numbers of sentences, subwords and hypotheses.
SIZES = ((1, 1, 1), (1, 6, 2), (4, 7, 3))
STEPS = 4
Arrays = dict[str, np.ndarray]


class Stepped(Protocol):
    """What runs the graphs; `onnx_host.Model` is one."""

    def start(self, source: np.ndarray, languages: np.ndarray | None) -> tuple[Arrays, Arrays]: ...

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

    def step(
        self, tokens: np.ndarray, position: int, memory: Arrays, state: Arrays
    ) -> tuple[np.ndarray, Arrays]:
        log_probs, *new = self.run(
            "step", {"tokens": tokens, "position": np.array(position), **memory, **state}
        ).values()
        return log_probs, dict(zip(state, new, strict=True))


def largest_difference(model: TranslationModel, other: Stepped) -> float:
    """Of a log-probability, over batches of all `SIZES` whose hypotheses are reordered after every step."""
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    with torch.no_grad():
        for sentences, length, width in SIZES:
            source = torch.randint(4, SIZE, (sentences, length), generator=generator)
            for row in range(1, sentences):
                source[row, length - row :] = model.pad_id
            languages = (
                torch.randint(0, COUNT, (sentences,), generator=generator) if model.languages else None
            )
            state = model.start(source, STEPS, languages=languages)
            memory, theirs = other.start(source.numpy(), None if languages is None else languages.numpy())
            tokens, rows = torch.ones(sentences, 1, dtype=torch.int64), np.arange(sentences)[:, None]
            for position in range(STEPS):
                expected, state = model.step(tokens.flatten(), state)
                found, theirs = other.step(tokens.numpy(), position, memory, theirs)
                assert found.shape == (*tokens.shape, expected.size(1))
                worst = max(worst, float(np.abs(found.reshape(expected.shape) - expected.numpy()).max()))
                parents = torch.zeros(sentences, width, dtype=torch.int64)
                if position == 0:
                    state = state.expand(width)
                else:
                    parents = torch.randint(0, width, parents.shape, generator=generator)
                    state = state.reorder((parents + width * torch.arange(sentences)[:, None]).flatten())
                theirs = {name: array[rows, parents.numpy()] for name, array in theirs.items()}
                tokens = torch.randint(1, SIZE, (sentences, width), generator=generator)
    return worst


def graphs_of(model: TranslationModel) -> tuple[Graph, Graph, Graph]:
    """The graphs of a model with an encoder."""
    assert isinstance(model, EncoderDecoder)
    return decoding_graphs(model)


def in_onnx(model: TranslationModel, folder: Path, *, int8: bool = False) -> Stepped:
    """The model as onnxruntime runs it."""
    from deepwire.export.onnx_graphs import round_weights, write_graph
    from deepwire.export.onnx_host import Model

    graphs = graphs_of(model)
    described = {}
    for graph in graphs:
        file = folder / f"{graph.name}.onnx"
        write_graph(graph, file)
        if int8:
            round_weights(file)
        described[graph.name] = {
            "file": file.name,
            "inputs": [asdict(leaf) for leaf in graph.inputs],
            "outputs": [asdict(leaf) for leaf in graph.outputs],
        }
    return Model(folder, {"graphs": described})


def drawn(seed: int, layers: int = 2) -> Mapping[str, object]:
    """The settings of a model with any choice at every socket of both sides, from all that fit each other."""
    generator = random.Random(seed)
    stacks = [combinations("encoder"), combinations("decoder")]
    while True:
        encoder, decoder = ({"layers": layers, **generator.choice(each)} for each in stacks)
        wanted = model_settings(encoder, decoder, generator.choice(LANGUAGES))
        if refused(wanted) is None:
            return wanted


def drawn_model(seed: int) -> TranslationModel:
    """A small model of drawn settings."""
    return small_model(drawn(seed), seed)
