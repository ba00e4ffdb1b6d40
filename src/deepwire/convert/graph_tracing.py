"""Graphs traced by `torch.export`: programs of a few hundred plain operations, for any sizes."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from deepwire.convert.decoding_graphs import POSITIONS, Graph, Leaf, Tensors

_LONGEST = 2**20


def traced(graph: Graph) -> ExportedProgram:
    """The program of a graph, called as its module is."""
    with plain_operations(graph.module):
        return torch.export.export(graph.module, graph.arguments, dynamic_shapes=dynamic_shapes(graph))


def traced_flat(graph: Graph) -> ExportedProgram:
    """The program of a graph that takes all its tensors one after the other."""
    flat = _Flat(graph)
    tensors = tuple(tensor for part in graph.arguments for tensor in _parts(part))
    with plain_operations(graph.module):
        return torch.export.export(flat, tensors, dynamic_shapes=(tuple(map(_axes, graph.inputs)),))


class _Flat(nn.Module):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.module, self.arguments = graph.module, graph.arguments

    def forward(self, *tensors: Tensor) -> Tensors:
        """The module with these tensors in their places."""
        left = iter(tensors)
        arguments = [
            tuple(next(left) for _ in part)
            if isinstance(part, tuple)
            else None
            if part is None
            else next(left)
            for part in self.arguments
        ]
        results: Tensors = self.module(*arguments)
        return results


def _parts(argument: Tensor | Tensors | None) -> Tensors:
    return argument if isinstance(argument, tuple) else () if argument is None else (argument,)


def dynamic_shapes(graph: Graph) -> tuple[object, ...]:
    """Which axes of each argument of a graph may change, as `torch.export` wants it."""
    axes = iter([_axes(leaf) for leaf in graph.inputs])
    shapes: list[object] = []
    for argument in graph.arguments:
        if isinstance(argument, tuple):
            shapes.append(tuple(next(axes) for _ in argument))
        else:
            shapes.append(None if argument is None else next(axes))
    return tuple(shapes)


def _axes(leaf: Leaf) -> dict[int, object]:
    return {
        axis: torch.export.Dim(size, min=0 if size == POSITIONS else 1, max=_LONGEST)
        for axis, size in enumerate(leaf.shape)
        if isinstance(size, str)
    }


@contextmanager
def plain_operations(module: nn.Module) -> Iterator[None]:
    """Trace without gradients, and without the ways to compute that depend on this machine or on sizes."""
    precision = torch.get_float32_matmul_precision()
    learning = [parameter for parameter in module.parameters() if parameter.requires_grad]
    torch.set_float32_matmul_precision("highest")
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for parameter in learning:
            parameter.requires_grad_(True)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the remarks of the exporter and the quantizer, which are about themselves."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        # The exporter prints the graph of what it cannot trace.
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
