"""Graphs as programs of `torch.export`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import ClassVar

import torch

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.decoding_graphs import Graph
from deepwire.convert.graph_folder import GraphFolder
from deepwire.convert.graph_tracing import quiet, traced_flat


class TorchExport(GraphFolder):
    """Programs of `torch.export`, which torch runs."""

    name = "torch_export"
    quantizations = ("float32",)
    runs: ClassVar = "torch_export"
    suffix: ClassVar = ".pt2"

    def require(self, model: LoadedModel) -> None:
        """See the base class; every model can be written, by torch alone."""

    def write_graph(self, graph: Graph, path: Path, quantization: str) -> None:
        """See the base class."""
        program = io.BytesIO()
        with quiet():
            torch.export.save(traced_flat(graph), program)
        path.write_bytes(program.getbuffer())

    def version(self) -> str:
        """See the base class."""
        return f"torch {torch.__version__}"
