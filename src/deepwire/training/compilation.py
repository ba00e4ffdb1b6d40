"""Compile the layers of a model one by one, which makes few kernels of what is between two products.

Of a whole model torch would make one graph, which takes minutes. Layers that are alike have the same graph
but for the parameters that it is given, and it is compiled once. The others only have their code followed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.backends.registry import CompiledFn, lookup_backend
from torch._dynamo.exc import TorchDynamoException
from torch._guards import detect_fake_mode
from torch.distributed.fsdp import FSDPModule
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves

from deepwire.data.vocabulary import EOS, PAD
from deepwire.model.translation_model import TranslationModel
from deepwire.training.device import PrecisionPolicy
from deepwire.training.parallel_strategy import LossFunction

# How torch makes graphs run.
BACKEND = "inductor"
# Lengths of the first batch. Rows, source and target have different sizes, and odd ones, as no width has:
# what is of the same size there torch takes for one size.
_SOURCE, _TARGET = 31, 29
_NOTES = ("_dynamo_propagated_dynamic_indices", "_dynamo_weak_dynamic_indices")  # the latter by torch 2.11


def compile_layers(model: TranslationModel, say: Callable[[str], None]) -> None:
    """Let every layer be compiled when training first comes to it; one that cannot be runs as it is.

    Of sharded models only the sub-layers are compiled: what is around them brings their parts together.

    Args:
        model: The model.
        say: Told once of each stack that has such layers, and why.
    """
    # Numbers of the settings are constants: as inputs, torch would follow all code twice to find that out.
    torch._dynamo.config.specialize_float = True
    backend = _OneOfAKind()
    for side, stack in model.stacks().items():
        tell = _once(say)
        if isinstance(model, FSDPModule):
            for part in chain.from_iterable(stack.sublayers()):
                part.forward = partial(_compiled(type(part).forward, backend, side, tell), part)
            continue
        for calls in stack.layers:
            stack.compiled[calls.start] = _compiled(type(stack).run_layer, backend, side, tell)


def warm_up(model: TranslationModel, loss: LossFunction, precision: PrecisionPolicy, tokens: int) -> float:
    """Go through a batch of so many padded tokens, for nothing but compiling; the seconds that it took.

    Whatever a run continues from, kernels are then chosen for the same sizes, so that it rounds alike.
    """
    begun, device = time.perf_counter(), next(model.parameters()).device
    rows = max(3, tokens // _SOURCE) | 1
    rows += 4 * (rows in (_SOURCE, _TARGET))
    source, target = (torch.full((rows, length), EOS, device=device) for length in (_SOURCE, _TARGET))
    source[0, 1:] = target[0, 1:] = PAD
    languages = torch.zeros(rows, dtype=torch.int64, device=device) if model.languages else None
    model.train()
    with precision.autocast():
        sums = loss(source, target, target, languages=languages)
    sums.smoothed.backward()  # type: ignore[no-untyped-call]
    model.zero_grad()
    return time.perf_counter() - begun


@dataclass(frozen=True)
class _Made:
    """A compiled graph, and conditions on its sizes that were found while it was compiled."""

    function: CompiledFn
    sizes: Sequence[Any]
    conditions: Sequence[Any]

    def serves(self, sizes: Sequence[Any], shapes: ShapeEnv) -> bool:
        """Whether a graph that is alike keeps to the conditions; torch then looks at them before it runs."""
        own = dict(zip(self.sizes, sizes, strict=True))
        return all(
            condition.free_symbols <= own.keys() and bool(shapes.evaluate_expr(condition.xreplace(own)))
            for condition in self.conditions
        )


class _OneOfAKind:
    """Compiles graphs, and those that are alike once."""

    def __init__(self) -> None:
        self._made: dict[object, _Made] = {}

    def __call__(self, graph: GraphModule, inputs: list[Tensor]) -> CompiledFn:
        key, sizes, fake = _outline(graph), _sizes(graph), detect_fake_mode(inputs)
        shapes: ShapeEnv | None = None if fake is None else fake.shape_env
        if key is None or shapes is None:
            return lookup_backend(BACKEND)(graph, inputs)
        made = self._made.get(key)
        if made is None or not made.serves(sizes, shapes):
            known = len(shapes.guards)
            function = lookup_backend(BACKEND)(graph, inputs)
            made = self._made[key] = _Made(function, sizes, [each.expr for each in shapes.guards[known:]])
        return made.function


def _sizes(graph: GraphModule) -> list[Any]:
    """The sizes that a graph is given, as torch calls them."""
    given = (node.meta.get("example_value") for node in graph.graph.nodes if node.op == "placeholder")
    return [value.node.expr for value in given if isinstance(value, torch.SymInt)]


def _outline(graph: GraphModule) -> object:
    """The outline that graphs share which are alike; None of one that holds tensors."""
    number: dict[object, int] = {}

    def plain(value: Any) -> Any:
        """The number of a node, or text in which sizes are numbered in the order of their appearance."""
        if isinstance(value, Node):
            return number[value]
        names = re.sub(
            r"\b[su]\d+\b", lambda name: f"size {number.setdefault(name[0], len(number))}", str(value)
        )
        return type(value).__name__, names

    lines: list[object] = [torch.is_grad_enabled(), *map(torch.is_autocast_enabled, ("cpu", "cuda"))]
    for node in graph.graph.nodes:
        known = node.meta.get("example_value") if node.op == "placeholder" else node.target
        if node.op == "get_attr":
            held = getattr(graph, node.target, None)
            known = _outline(held) if isinstance(held, GraphModule) else None
            if known is None:
                return None
        if isinstance(known, Tensor):
            known = known.shape, known.stride(), known.dtype, known.device, known.requires_grad
        lines.append((node.op, plain(known), map_aggregate((node.args, node.kwargs), plain)))
        number[node] = len(number)
    return str(lines)


def _compiled(
    plain: Callable[..., Any], backend: _OneOfAKind, side: str, say: Callable[[str], None]
) -> Callable[..., Any]:
    """A compiled function, or after the first failure the plain one."""
    # torch keeps graphs by code, at most eight, and goes through them at each call: layers have their own.
    code = FunctionType(
        plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
    )
    run = torch.compile(code, dynamic=True, fullgraph=True, backend=backend)

    def call(*arguments: object) -> Any:
        nonlocal run
        try:
            made = run(*arguments)
        except TorchDynamoException as error:
            say(f"compile: the {side} has layers that run as they are: {str(error).strip().splitlines()[0]}")
            run = plain
            return plain(*arguments)
        # With torch's notes, the graph of the layer that reads them is given sizes twice, and so not alike.
        for each in tree_leaves(made):
            for note in _NOTES if isinstance(each, Tensor) else ():
                vars(each).pop(note, None)
        return made

    return call


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Say only the first thing."""
    said: list[str] = []

    def tell(text: str) -> None:
        if not said:
            say(text)
        said.append(text)

    return tell
