"""ONNX: any model as three graphs, for onnxruntime and whatever else runs them.

A folder holds `encoder.onnx`, `start.onnx` and `step.onnx` (see `deepwire.export.decoding_graphs`),
`manifest.json`, `vocabulary/`, and `translate.py`, which translates with them and needs no deepwire.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from deepwire import __version__
from deepwire.checkpoint.store import LoadedModel
from deepwire.data.languages import Languages
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies
from deepwire.decoding.model_loading import stored_config
from deepwire.errors import ModelError, UsageError
from deepwire.export.decoding_graphs import Graph, decoding_graphs
from deepwire.export.export_format import ExportedModel, ExportFormat
from deepwire.export.onnx_graphs import round_weights, write_graph
from deepwire.export.searched_model import SearchedModel, host_settings
from deepwire.io.atomic import json_text
from deepwire.model.encoder_decoder import EncoderDecoder

if TYPE_CHECKING:
    from deepwire.export.onnx_host import Translator

MANIFEST, VOCABULARY, HOST = "manifest.json", "vocabulary", "translate.py"
FORMAT = 1
_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")


class ONNX(ExportFormat):
    """ONNX graphs, run by onnxruntime."""

    name = "onnx"
    quantizations = ("float32", "int8")
    computes_the_same = True

    def require(self, model: LoadedModel) -> None:
        """See the base class; every model with an encoder can be written."""
        _with_encoder(model)
        missing = [library for library in _LIBRARIES if find_spec(library) is None]
        if missing:
            raise UsageError(
                f"--format onnx needs {', '.join(missing)}, which is not installed",
                "pip install 'deepwire[onnx]'",
            )

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """What is not exported of the settings that the model is translated with."""
        if stored_config(model).sampling is None:
            return ()
        return (
            "decoding.sampling is left out: translate.py searches, with the beam of the model's settings",
        )

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """See the base class."""
        config = stored_config(model)
        graphs = decoding_graphs(_with_encoder(model))
        for graph in graphs:
            write_graph(graph, folder / f"{graph.name}.onnx")
            if quantization == "int8":
                round_weights(folder / f"{graph.name}.onnx")
        model.vocabularies.save(folder / VOCABULARY)
        shutil.copyfile(Path(__file__).with_name("onnx_host.py"), folder / HOST)
        manifest = {
            "format": FORMAT,
            "deepwire": __version__,
            "weights": quantization,
            "graphs": {graph.name: _described(graph, folder) for graph in graphs},
            "symbols": {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
            "source_bos": model.metadata.get("source_bos") is True,
            "source_pieces": model.vocabularies.source.size,
            "target_pieces": model.vocabularies.target.size,
            "languages": _languages(model),
            "decoding": host_settings(config),
            "vocabulary": _vocabulary_files(model.vocabularies),
        }
        (folder / MANIFEST).write_text(json_text(manifest), encoding="utf-8")

    def read(self, folder: Path) -> ExportedModel:
        """See the base class."""
        return SearchedModel(folder / VOCABULARY, partial(_translator, folder))

    def version(self) -> str:
        """See the base class."""
        return f"onnxruntime {version('onnxruntime')}"


def _translator(folder: Path, settings: Mapping[str, object]) -> Translator:
    """The file that stands beside the graphs, run by onnxruntime."""
    from deepwire.export.onnx_host import Translator

    return Translator(folder, settings)


def _described(graph: Graph, folder: Path) -> dict[str, object]:
    """What the manifest says about a graph."""
    file = folder / f"{graph.name}.onnx"
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {
        "file": file.name,
        "sha256": digest,
        "inputs": [asdict(leaf) for leaf in graph.inputs],
        "outputs": [asdict(leaf) for leaf in graph.outputs],
    }


def _languages(model: LoadedModel) -> dict[str, dict[str, int | None]]:
    """What the model reads to translate into each language; nothing with one direction."""
    languages = Languages.from_metadata(model.metadata)
    if languages is None:
        return {}
    source, target = model.vocabularies.source.size, model.vocabularies.target.size
    return {
        name: {
            "number": (number := languages.names.index(name)),
            "source_tag": source + number if languages.tags_source else None,
            "first_token": target + number if languages.tags_target else BOS,
        }
        for name in languages.targets
    }


def _vocabulary_files(vocabularies: Vocabularies) -> dict[str, object]:
    """Kind, and the files of either side."""
    joint = vocabularies.source is vocabularies.target
    sides = {"source": vocabularies.source, "target": vocabularies.target}
    files = {
        side: [f"{VOCABULARY}/{name}" for name in vocabulary.files("joint" if joint else side)]
        for side, vocabulary in sides.items()
    }
    return {"type": vocabularies.type, **files}


def _with_encoder(model: LoadedModel) -> EncoderDecoder:
    """The model with the groups and rounds that it is translated with.

    Raises:
        ModelError: It has no encoder, so its graphs would have to read the source word by word.
    """
    config = stored_config(model)
    chosen = model.model if config.group_range is None else model.model.restrict(*config.group_range)
    if not isinstance(chosen, EncoderDecoder):
        raise ModelError(
            f"ONNX graphs are made of an encoder and a decoder, and model.architecture is "
            f"{chosen.config.architecture}",
            "translate with deepwire itself",
        )
    return chosen if config.rounds is None else chosen.with_rounds(config.rounds)
