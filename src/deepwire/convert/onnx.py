"""ONNX: any model as graphs for onnxruntime and whatever else runs them."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.decoding_graphs import Graph
from deepwire.convert.graph_folder import GraphFolder
from deepwire.convert.onnx_graphs import round_weights, write_graph
from deepwire.errors import UsageError

_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")


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
