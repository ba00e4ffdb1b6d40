"""Any model as graphs in a folder, with a host that translates with them and needs no deepwire.

A folder holds the graphs (see `deepwire.convert.decoding_graphs`), `manifest.json`, `vocabulary/`, and the
host, `translate.py`. The graphs are those of ONNX, also with weights of eight bits, or programs of
`torch.export`.
"""

from __future__ import annotations

import io
import logging
import shutil
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from deepwire import __version__
from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.decoding_graphs import POSITIONS, Graph, Tensors, decoding_graphs
from deepwire.convert.export_format import ExportedModel, ExportFormat, HostedModel, host_settings
from deepwire.convert.translate import Translator
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK
from deepwire.decoding.model_inputs import LanguageSelector
from deepwire.decoding.model_loading import languages_of, stored_config
from deepwire.decoding.models import as_configured
from deepwire.errors import ModelError
from deepwire.io.atomic import json_text
from deepwire.model.decoder_only import LanguageModel
from deepwire.model.translation_model import TranslationModel

MANIFEST, VOCABULARY = "manifest.json", "vocabulary"
PROGRAM = "translate.py"
FORMAT = 1
OPSET = 20
"""The version of ONNX's operators; onnxruntime 1.17 is the first to know it."""
_LONGEST, _ALL, _MATRIX = 2**20, 2**40, 2


class GraphFolder(ExportFormat):
    """Graphs in files of some kind; every model can be written.

    Attributes:
        runs: What the host runs them with.
        suffix: Of their files.
    """

    runs: ClassVar[str]
    suffix: ClassVar[str]
    computes_the_same = True
    has_language_models = True

    @abstractmethod
    def write_graph(self, graph: Graph, path: Path, quantization: str) -> None:
        """Write one."""

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Settings of translation that are not exported."""
        config = stored_config(model)
        lost = {"sampling": config.sampling is not None, "no_repeat_ngram": config.no_repeat_ngram > 0}
        return tuple(
            f"decoding.{name} is left out: translate.py has no such setting"
            for name, is_lost in lost.items()
            if is_lost
        )

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """See the base class."""
        (chosen,) = as_configured([model.model], stored_config(model))
        assert isinstance(chosen, TranslationModel)
        graphs = decoding_graphs(chosen)
        try:
            for graph in graphs:
                self.write_graph(graph, folder / f"{graph.name}{self.suffix}", quantization)
        except RuntimeError as error:  # of torch.export; all parts of deepwire can be traced
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelError(
                f"{model.folder}: cannot be exported as {self.name}: {reason}",
                "parts of other packages may have no tests of values and no loops over positions in Python",
            ) from error
        words = model.vocabularies
        words.save(folder / VOCABULARY)
        names = {side: "joint" if words.source is words.target else side for side in words.sides}
        files = {
            side: [f"{VOCABULARY}/{name}" for name in each.files(names[side])]
            for side, each in words.sides.items()
        }
        shutil.copyfile(Path(__file__).with_name(PROGRAM), folder / PROGRAM)
        is_language_model = isinstance(model.model, LanguageModel)
        # A language model continues text greedily, unless it is told otherwise.
        alone = {"beam": 1, "n_best": 1} if is_language_model else {}
        manifest = {
            "format": FORMAT,
            "deepwire": __version__,
            "runs": self.runs,
            "architecture": "language_model" if is_language_model else model.model.config.architecture,
            "weights": quantization,
            "graphs": {
                graph.name: {
                    "file": f"{graph.name}{self.suffix}",
                    "inputs": [asdict(leaf) for leaf in graph.inputs],
                    "outputs": [asdict(leaf) for leaf in graph.outputs],
                }
                for graph in graphs
            },
            "symbols": {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
            "source_bos": model.metadata.get("source_bos") is True,
            "source_pieces": words.source.size,
            "target_pieces": words.target.size,
            "languages": _languages(model),
            "decoding": host_settings(stored_config(model)) | alone,
            "vocabulary": {"type": words.type, **files},
        }
        (folder / MANIFEST).write_text(json_text(manifest), encoding="utf-8")

    def read(self, folder: Path) -> ExportedModel:
        """See the base class; the graphs are opened once, for all settings of a search."""
        host = Translator(folder)
        return HostedModel(folder / VOCABULARY, host.model, host.manifest)


class ONNX(GraphFolder):
    """ONNX graphs, run by onnxruntime and whatever else knows them."""

    name = extra = "onnx"
    packages = ("onnxruntime", "onnx", "onnxscript")
    quantizations = ("float32", "int8")
    runs: ClassVar = "onnxruntime"
    suffix: ClassVar = ".onnx"

    def write_graph(self, graph: Graph, path: Path, quantization: str) -> None:
        """See the base class."""
        write_onnx(graph, path)
        if quantization == "int8":
            round_weights(path)


class TorchExport(GraphFolder):
    """Programs of `torch.export`, which torch runs."""

    name = "torch_export"
    packages = ("torch",)
    quantizations = ("float32",)
    runs: ClassVar = "torch_export"
    suffix: ClassVar = ".pt2"

    def write_graph(self, graph: Graph, path: Path, quantization: str) -> None:
        """See the base class."""
        program = io.BytesIO()
        with quiet():
            torch.export.save(traced(graph), program)
        path.write_bytes(program.getbuffer())


def _languages(model: LoadedModel) -> dict[str, dict[str, int | None]]:
    """Tokens and numbers of each target language; none with one direction."""
    languages, keys = languages_of(model), ("number", "source_tag", "first_token")
    select = LanguageSelector(languages, model.vocabularies, lambda _: None).select
    targets = () if languages is None else languages.targets
    return {name: dict(zip(keys, select(name) or (), strict=True)) for name in targets}


class _Flat(nn.Module):
    """A graph that takes all its tensors one after the other."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.module, self.arguments = graph.module, graph.arguments

    def forward(self, *tensors: Tensor) -> Tensors:
        left, arguments = iter(tensors), list[Tensor | Tensors | None]()
        for part in self.arguments:
            whole = tuple(next(left) for _ in _parts(part))
            arguments.append(whole if isinstance(part, tuple) else None if part is None else whole[0])
        results: Tensors = self.module(*arguments)
        return results


def _parts(argument: Tensor | Tensors | None) -> Tensors:
    return argument if isinstance(argument, tuple) else () if argument is None else (argument,)


def traced(graph: Graph) -> ExportedProgram:
    """The program of a graph, which takes its tensors in order: a few hundred operations, for any sizes."""
    tensors = tuple(tensor for part in graph.arguments for tensor in _parts(part))
    axes = [
        {
            axis: torch.export.Dim(size, min=0 if size == POSITIONS else 1, max=_LONGEST)
            for axis, size in enumerate(leaf.shape)
            if isinstance(size, str)
        }
        for leaf in graph.inputs
    ]
    with plain_operations(graph.module):
        return torch.export.export(_Flat(graph), tensors, dynamic_shapes=(tuple(axes),))


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


def write_onnx(graph: Graph, path: Path) -> None:
    """Write one graph in float32; weights of more than 2 GB lie in a file beside it."""
    from onnxscript import optimizer

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
        # Without onnxscript's rewriting rules, which would leave out an addend of 1e-8.
        optimizer.inline(program.model)
        optimizer.fold_constants(program.model, onnx_shape_inference=True)
        optimizer.remove_unused_nodes(program.model)
        program.save(path)


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
    """Weights as products read them; gives the names of products with a weight of more than two dimensions.

    In exact graphs they lie as the embedding does that they may be.
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
