"""Graphs as ONNX files, and with weights of eight bits."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from deepwire.export.decoding_graphs import POSITIONS, Graph, Leaf

if TYPE_CHECKING:
    from onnxscript import ir

OPSET = 20
"""Of ONNX; onnxruntime 1.17 is the first to know it."""
_LONGEST = 2**20
_ALL = 2**40


def write_graph(graph: Graph, path: Path) -> None:
    """Write one graph in float32; weights of more than 2 GB lie in a file beside it."""
    with _quiet(), _plain_operations(graph.module):
        traced = torch.export.export(graph.module, graph.arguments, dynamic_shapes=dynamic_shapes(graph))
        program = torch.onnx.export(
            traced,
            input_names=[leaf.name for leaf in graph.inputs],
            output_names=[leaf.name for leaf in graph.outputs],
            opset_version=OPSET,
            verbose=False,
            optimize=False,
        )
        assert program is not None
        _simplify(program.model)
        program.save(path)


def _simplify(model: ir.Model) -> None:
    """Inline functions and fold constants; onnxscript's rewriting rules would leave out an addend of 1e-8."""
    from onnxscript import optimizer

    optimizer.inline(model)
    optimizer.fold_constants(model, onnx_shape_inference=True)
    optimizer.remove_unused_nodes(model)


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


def round_weights(path: Path) -> None:
    """Replace the weights of a graph's matrix products by bytes; their inputs are rounded as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    exact = path.with_suffix(".float32.onnx")
    with _quiet():
        _transpose_weights(path, exact)
        # Seven bits: CPUs without units for bytes add two products in 16 bits, which eight would overflow.
        quantize_dynamic(
            exact,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=path.with_name(f"{path.name}.data").exists(),
        )
    for file in exact.parent.glob(f"{exact.name}*"):
        file.unlink()


def _transpose_weights(path: Path, to: Path) -> None:
    """Weights as products read them; in exact graphs they lie as the embedding does that they may be."""
    import onnx
    from onnxscript import optimizer

    model = onnx.load(path)
    optimizer.fold_constants(model, input_size_limit=_ALL, output_size_limit=_ALL)
    large = path.with_name(f"{path.name}.data").exists()
    onnx.save(model, to, save_as_external_data=large, location=f"{to.name}.data")


@contextmanager
def _plain_operations(module: nn.Module) -> Iterator[None]:
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
def _quiet() -> Iterator[None]:
    """Without the remarks of the exporter and the quantizer, which are about themselves."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
