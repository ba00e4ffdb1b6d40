"""A small model with the contract of the search, whose answers can be computed by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor
from toy_vocabulary import toy_vocabularies

from deepwire.data.vocabulary import BOS, EOS, PAD


@dataclass
class FakeState:
    """Memory has one row per sentence, hidden one per hypothesis."""

    memory: Tensor
    hidden: Tensor
    width: int = 1

    def expand(self, width: int) -> FakeState:
        assert self.width == 1
        return FakeState(self.memory, self.hidden.repeat_interleave(width, 0), width)

    def reorder(self, rows: Tensor) -> FakeState:
        sentences = torch.arange(len(rows)) // self.width
        assert torch.equal(rows // self.width, sentences), "a hypothesis moved to another sentence"
        return FakeState(self.memory, self.hidden.index_select(0, rows), self.width)

    def keep(self, sentences: Tensor) -> FakeState:
        hidden = self.hidden.view(-1, self.width, self.hidden.size(1)).index_select(0, sentences)
        return FakeState(self.memory.index_select(0, sentences), hidden.flatten(0, 1), self.width)


class FakeModel:
    """A recurrent model with random weights in float64: rows do not influence each other in any batch."""

    def __init__(self, size: int = 12, width: int = 8, seed: int = 0, sharpness: float = 3.0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def weights(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.size = size
        self.sources, self.targets = weights(size, width), weights(size, width)
        self.sources[PAD] = 0
        self.recurrent, self.output = weights(width, width), weights(width, size) * sharpness
        self.rows_seen: list[int] = []

    def start(
        self,
        source: Tensor,
        *,
        languages: Tensor | None = None,
        prompt: Tensor | None = None,
    ) -> FakeState:
        positions = torch.arange(1, source.size(1) + 1, dtype=torch.float64).view(1, -1, 1)
        memory = (self.sources[source] * positions.cos()).sum(1)
        state = FakeState(memory, memory.tanh())
        for tokens in () if prompt is None else prompt.unbind(1):
            hidden = self.step(tokens, state)[1].hidden
            state = FakeState(memory, torch.where((tokens != PAD).unsqueeze(1), hidden, state.hidden))
        return state

    def step(self, tokens: Tensor, state: FakeState) -> tuple[Tensor, FakeState]:
        assert len(tokens) == len(state.hidden) == len(state.memory) * state.width
        self.rows_seen.append(len(tokens))
        memory = state.memory.repeat_interleave(state.width, 0)
        summed = (state.hidden.unsqueeze(2) * self.recurrent).sum(1) + self.targets[tokens] + memory
        hidden = summed.tanh()
        logits = (hidden.unsqueeze(2) * self.output).sum(1)
        return logits.log_softmax(1).float(), FakeState(state.memory, hidden, state.width)

    def log_probs(self, source: Tensor, target_input: Tensor, *, languages: Tensor | None = None) -> Tensor:
        state, found = self.start(source, languages=languages), []
        for tokens in target_input.unbind(1):
            log_probs, state = self.step(tokens, state)
            found.append(log_probs)
        return torch.stack(found, 1)

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        state, scores = self.start(source, languages=languages), []
        for step in range(target_input.size(1)):
            log_probs, state = self.step(target_input[:, step], state)
            scores.append(log_probs.gather(1, target_output[:, step : step + 1]))
        return torch.cat(scores, 1).masked_fill(target_output == PAD, 0.0)


class NanModel(FakeModel):
    """A model whose weights are damaged."""

    def step(self, tokens: Tensor, state: FakeState) -> tuple[Tensor, FakeState]:
        log_probs, state = super().step(tokens, state)
        return log_probs * float("nan"), state


def _log_probability(model: FakeModel, source: list[int], target: tuple[int, ...]) -> float:
    """The model's own log-probability of a translation, EOS included."""
    rows = torch.tensor([source])
    return float(model.score(rows, torch.tensor([[BOS, *target]]), torch.tensor([[*target, EOS]])).sum())


def _every_translation(symbols: list[int], longest: int) -> list[tuple[int, ...]]:
    return [ids for length in range(longest + 1) for ids in product(symbols, repeat=length)]


def _random_sources(count: int, size: int, seed: int = 0, longest: int = 9) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    sources = []
    for _ in range(count):
        length = int(torch.randint(1, longest + 1, (1,), generator=generator))
        sources.append([*torch.randint(4, size, (length,), generator=generator).tolist(), EOS])
    return sources


def _padded(sources: list[list[int]]) -> Tensor:
    width = max(map(len, sources))
    return torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in sources])


class Toys:
    """What the tests of this folder share."""

    Model = FakeModel
    NanModel = NanModel
    log_probability = staticmethod(_log_probability)
    every_translation = staticmethod(_every_translation)
    random_sources = staticmethod(_random_sources)
    padded = staticmethod(_padded)
    vocabularies = staticmethod(toy_vocabularies)


@pytest.fixture(scope="session")
def toys() -> type[Toys]:
    return Toys
