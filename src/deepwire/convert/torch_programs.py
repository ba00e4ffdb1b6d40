"""Graphs as programs of `torch.export`, and compiled by AOTInductor for C++ without Python."""

from __future__ import annotations

import io
from pathlib import Path
from typing import ClassVar

import torch
from torch import fx
from torch.export import ExportedProgram

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.decoding_graphs import Graph
from deepwire.convert.graph_folder import GraphFolder
from deepwire.convert.graph_tracing import quiet, traced_flat
from deepwire.errors import ModelError, UsageError


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


class AOTInductor(TorchExport):
    """The same programs compiled to libraries, which libtorch runs."""

    name = "aotinductor"
    runs: ClassVar = "aotinductor"

    def require(self, model: LoadedModel) -> None:
        """See the base class; every model can be written where there is a compiler."""
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            get_cpp_compiler()
        except InvalidCxxCompiler:
            raise UsageError(
                "--format aotinductor needs a C++ compiler, and there is no g++",
                "install g++, or set CXX to another compiler",
            ) from None

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """What it is compiled for."""
        return (
            *super().notes(model),
            f"compiled for processors such as this one and for torch {torch.__version__}",
        )

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """See the base class."""
        from torch._inductor.utils import fresh_cache

        with fresh_cache():
            super().write(model, folder, quantization)

    def write_graph(self, graph: Graph, path: Path, quantization: str) -> None:
        """See the base class."""
        from torch._inductor import aoti_compile_and_package
        from torch._inductor.exc import CppCompileError, InductorError

        library = io.BytesIO()
        with quiet():
            program = traced_flat(graph)
            bind_sizes(program)
            try:
                aoti_compile_and_package(program, package_path=library)
            except (InductorError, CppCompileError) as error:
                said = str(error).strip().splitlines()
                reason = next((line for line in said if "error:" in line), said[0])
                raise ModelError(
                    f"--format aotinductor: {graph.name} cannot be compiled: {reason}",
                    "--format torch_export and --format onnx need no compiler",
                ) from error
        path.write_bytes(library.getbuffer())


def bind_sizes(program: ExportedProgram) -> None:
    """Hand the sizes that may change to every loop over positions: the compiler looks for them there."""
    graph = program.graph
    for node in graph.nodes:
        if node.target is not torch.ops.higher_order.scan:
            continue
        body, first, inputs, others = node.args
        inside = program.graph_module.get_submodule(body.target).graph
        begin = next(each for each in inside.nodes if each.op != "placeholder")
        sizes = [*others]
        for symbol, tensor, axis in _sizes((*first, *inputs)):
            with graph.inserting_before(node):
                size = graph.call_function(torch.ops.aten.sym_size.int, (tensor, axis))
            size.meta["val"] = symbol
            sizes.append(size)
            with inside.inserting_before(begin):
                inside.placeholder(f"size_{len(sizes)}").meta["val"] = symbol
        node.args = (body, first, inputs, tuple(sizes))
        program.graph_module.get_submodule(body.target).recompile()
    program.graph_module.recompile()


def _sizes(tensors: tuple[fx.Node, ...]) -> list[tuple[torch.SymInt, fx.Node, int]]:
    """The sizes that may change, each with a tensor and the axis that has it."""
    places: dict[str, tuple[torch.SymInt, fx.Node, int]] = {}
    for tensor in tensors:
        for axis, size in enumerate(tensor.meta["val"].shape):
            if isinstance(size, torch.SymInt):
                places.setdefault(str(size), (size, tensor, axis))
    return list(places.values())
