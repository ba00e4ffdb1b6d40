"""ONNX: any model as graphs for onnxruntime and whatever else runs them, also with weights of eight bits."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.decoding_graphs import Graph
from deepwire.convert.graph_folder import GraphFolder
from deepwire.convert.graph_tracing import quiet, traced
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from onnxscript import ir

_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")


OPSET = 20
"""Of ONNX; onnxruntime 1.17 is the first to know it."""
_ALL = 2**40
_MATRIX = 2


class ONNX(GraphFolder):
    """ONNX graphs, run by onnxruntime."""

    name = "onnx"
    quantizations = ("float32", "int8")
    runs: ClassVar = "onnxruntime"
    suffix: ClassVar = ".onnx"

    def require(self, model: LoadedModel) -> None:
        """See the base class; every model can be written."""
        missing = [library for library in _LIBRARIES if find_spec(library) is None]
        if missing:
            raise UsageError(
                f"--format onnx needs {', '.join(missing)}, which is not installed",
                "pip install 'deepwire[onnx]'",
            )

    def write_graph(self, graph: Graph, path: Path, quantization: str) -> None:
        """See the base class."""
        write_graph(graph, path)
        if quantization == "int8":
            round_weights(path)

    def version(self) -> str:
        """See the base class."""
        return f"onnxruntime {version('onnxruntime')}"


def write_graph(graph: Graph, path: Path) -> None:
    """Write one graph in float32; weights of more than 2 GB lie in a file beside it."""
    with quiet():
        program = torch.onnx.export(
            traced(graph),
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


def round_weights(path: Path) -> None:
    """Replace the weights of a graph's matrix products by bytes; their inputs are rounded as they come.

    Weights of a batch of products, one for each head, stay as they are: onnxruntime has no zero points for
    the columns of each.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    exact = path.with_suffix(".float32.onnx")
    with quiet():
        batched = _transpose_weights(path, exact)
        # Seven bits: CPUs without units for bytes add two products in 16 bits, which eight would overflow.
        quantize_dynamic(
            exact,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=batched,
            use_external_data_format=path.with_name(f"{path.name}.data").exists(),
        )
    for file in exact.parent.glob(f"{exact.name}*"):
        file.unlink()


def _transpose_weights(path: Path, to: Path) -> list[str]:
    """Weights as products read them; in exact graphs they lie as the embedding does that they may be.

    Returns:
        The names of products with a weight of more than two dimensions.
    """
    import onnx
    from onnxscript import optimizer

    model = onnx.load(path)
    optimizer.fold_constants(model, input_size_limit=_ALL, output_size_limit=_ALL)
    large = path.with_name(f"{path.name}.data").exists()
    dimensions = {weight.name: len(weight.dims) for weight in model.graph.initializer}
    batched = [
        node.name
        for node in model.graph.node
        if node.op_type == "MatMul" and dimensions.get(node.input[1], 0) > _MATRIX
    ]
    onnx.save(model, to, save_as_external_data=large, location=f"{to.name}.data")
    return batched
