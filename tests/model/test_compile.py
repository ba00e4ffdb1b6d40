"""torch.compile takes a model layer by layer: one graph for layers that are alike, and the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.registry import CompiledFn, CompilerFn, lookup_backend
from torch._dynamo.utils import counters
from torch.fx import GraphModule

from deepwire.model.translation_model import TranslationModel
from deepwire.testing import batch, small_model, targets
from deepwire.training import compilation

SIDES = ("encoder", "decoder")
SYSTEMS: Mapping[str, Mapping[str, object]] = {
    "post_norm": {side: {"connection": "post_norm"} for side in SIDES},
    "depth_lstm": {side: {"connection": "depth_lstm"} for side in SIDES},
    "mhplstm": {"decoder": {"mixer": "mhplstm"}},
    "languages": {
        **{side: {"connection": "post_norm", "fusion": {"type": "groups", "size": 1}} for side in SIDES},
        "languages": {
            "norm": True,
            "transform": "released",
            "embedding": "both",
            "output_bias": True,
            "fusion": "both",
        },
    },
}
# Of layers: how many graphs three and three are compiled to.
KINDS = {"post_norm": 2, "depth_lstm": 4, "mhplstm": 2, "languages": 2}


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[GraphModule]:
    """The graphs that are compiled; they run as they were traced."""
    made: list[GraphModule] = []
    monkeypatch.setattr(compilation, "lookup_backend", lambda name: recording("eager", made))
    torch._dynamo.reset()
    counters.clear()
    return made


def recording(name: str, made: list[GraphModule]) -> CompilerFn:
    """One of torch's backends, which adds each graph to `made`."""

    def backend(graph: GraphModule, inputs: list[Tensor]) -> CompiledFn:
        made.append(graph)
        return lookup_backend(name)(graph, inputs)

    return backend


def batches() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The batch of three sentences, longer ones, as many sentences as words, and sizes of one."""
    for longer in (0, 3):
        yield tuple(torch.cat((side, side[:, :longer]), 1) for side in batch())  # type: ignore[misc]
    source, target, output = (side[:, :3] for side in batch())
    yield source, target, output
    yield source[:, :1], target, output


def outcome(model: TranslationModel) -> list[tuple[Tensor, ...]]:
    """Loss and gradients of each batch."""
    found = []
    for sides in batches():
        loss = model.loss(*sides, 0.1, languages=targets(model)).smoothed
        found.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    return found


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_layer_is_one_graph_with_its_numbers(
    system: str, compiled: list[GraphModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With activation checkpointing too."""
    if system == "post_norm":  # as for inductor: results carry torch's notes about their sizes
        monkeypatch.setattr(compilation, "lookup_backend", lambda name: recording("aot_eager", compiled))
    model = small_model(SYSTEMS[system]).double().train()
    expected = outcome(model)
    said: list[str] = []
    compilation.compile_layers(model, said.append)
    torch.testing.assert_close(outcome(model), expected)
    for stack in model.stacks().values():
        stack.recomputes = True
    torch.testing.assert_close(outcome(model), expected)
    assert counters["stats"]["unique_graphs"] == sum(len(s.layers) for s in model.stacks().values())
    assert not counters["graph_break"]
    assert len(compiled) == KINDS[system]
    assert not said


def test_layers_that_are_left_out_make_no_further_graphs_of_others() -> None:
    model = small_model({}).double().train()
    compilation.compile_layers(model, lambda text: None)
    for layer in range(3):
        for stack in model.stacks().values():
            stack.dropped_calls = frozenset(i for i, call in enumerate(stack.calls) if call.layer == layer)
        model.loss(*batch()).smoothed.backward()
    assert counters["stats"]["unique_graphs"] == 6
