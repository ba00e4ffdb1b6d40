"""Any model as graphs in a folder, with a host that translates with them and needs no deepwire.

A folder holds the graphs (see `deepwire.convert.decoding_graphs`), `manifest.json`, `vocabulary/`, and the
host: `translate.py` and `deepwire_host/`.
"""

from __future__ import annotations

import hashlib
import shutil
from abc import abstractmethod
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import ClassVar

from deepwire import __version__
from deepwire.checkpoint.store import LoadedModel
from deepwire.config.choice import plugins_of
from deepwire.convert.decoding_graphs import Graph, decoding_graphs
from deepwire.convert.export_format import ExportedModel, ExportFormat
from deepwire.convert.host.translator import SubwordTranslator
from deepwire.convert.searched_model import InMemoryHost, SearchedModel, host_settings
from deepwire.data.context import separator_of
from deepwire.data.languages import Languages
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies
from deepwire.decoding.model_loading import context_of, stored_config
from deepwire.decoding.models import as_configured
from deepwire.errors import ModelError
from deepwire.io.atomic import json_text
from deepwire.model.language_model import LanguageModel
from deepwire.model.translation_model import TranslationModel

MANIFEST, VOCABULARY = "manifest.json", "vocabulary"
PROGRAM, HOST = "translate.py", "deepwire_host"
FORMAT = 1


class GraphFolder(ExportFormat):
    """Graphs in files of some kind; every model can be written.

    Attributes:
        runs: What the host runs them with, as `deepwire.convert.host.graphs` calls it.
        suffix: Of their files.
    """

    runs: ClassVar[str]
    suffix: ClassVar[str]
    computes_the_same = True
    reads_documents = True
    has_language_models = True

    @abstractmethod
    def write_graph(self, graph: Graph, path: Path, quantization: str) -> None:
        """Write one."""

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Settings of translation that are not exported."""
        if stored_config(model).sampling is None:
            return ()
        return (
            "decoding.sampling is left out: translate.py searches, with the beam of the model's settings",
        )

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """See the base class."""
        graphs = decoding_graphs(_as_translated(model))
        try:
            for graph in graphs:
                self.write_graph(graph, folder / f"{graph.name}{self.suffix}", quantization)
        except RuntimeError as error:  # of torch.export
            _blame_plugins(model, self.name, error)
            raise
        model.vocabularies.save(folder / VOCABULARY)
        _write_host(folder)
        manifest = {
            "format": FORMAT,
            "deepwire": __version__,
            "runs": self.runs,
            "architecture": _architecture(model.model),
            "weights": quantization,
            "rounds": _rounds(model),
            "graphs": {
                graph.name: _described(graph, folder / f"{graph.name}{self.suffix}") for graph in graphs
            },
            "symbols": {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
            "source_bos": model.metadata.get("source_bos") is True,
            "source_pieces": model.vocabularies.source.size,
            "target_pieces": model.vocabularies.target.size,
            "languages": _languages(model),
            "context": _context(model),
            "decoding": _settings(model),
            "vocabulary": _vocabulary_files(model.vocabularies),
        }
        (folder / MANIFEST).write_text(json_text(manifest), encoding="utf-8")

    def read(self, folder: Path) -> ExportedModel:
        """See the base class; the graphs are opened once, for all settings of a search."""
        host = SubwordTranslator(folder)
        return SearchedModel(folder / VOCABULARY, partial(InMemoryHost, host.model, host.manifest))


def _blame_plugins(model: LoadedModel, format_name: str, error: RuntimeError) -> None:
    """Say what cannot be traced where a part is of another package; all of deepwire's can.

    Raises:
        ModelError: One is.
    """
    used = plugins_of(model.model.config)
    if parts := ", ".join(f"{each.kind} {each.name}" for each in used if each.kind != "initialization"):
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"{model.folder}: cannot be exported as {format_name} with parts of other packages ({parts}): "
            f"{reason}",
            "they may have no tests of values and no loops over positions in Python",
        ) from error


def _write_host(folder: Path) -> None:
    """The files that stand beside the graphs."""
    files = Path(__file__).with_name("host")
    (folder / HOST).mkdir()
    for file in files.glob("*.py"):
        shutil.copyfile(file, folder / PROGRAM if file.name == PROGRAM else folder / HOST / file.name)


def _settings(model: LoadedModel) -> dict[str, object]:
    """How deepwire would search: a language model greedily, unless it is told otherwise."""
    alone = {"beam": 1, "n_best": 1} if isinstance(model.model, LanguageModel) else {}
    return host_settings(stored_config(model)) | alone


def _architecture(model: TranslationModel) -> str:
    return "language_model" if isinstance(model, LanguageModel) else model.config.architecture


def _described(graph: Graph, file: Path) -> dict[str, object]:
    """The entry of a graph in the manifest."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {
        "file": file.name,
        "sha256": digest,
        "inputs": [asdict(leaf) for leaf in graph.inputs],
        "outputs": [asdict(leaf) for leaf in graph.outputs],
    }


def _languages(model: LoadedModel) -> dict[str, dict[str, int | None]]:
    """Tokens and numbers of each target language; none with one direction."""
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
    files = {
        side: [f"{VOCABULARY}/{name}" for name in vocabulary.files("joint" if joint else side)]
        for side, vocabulary in vocabularies.sides.items()
    }
    return {"type": vocabularies.type, **files}


def _context(model: LoadedModel) -> dict[str, object] | None:
    """How many lines of a document stand in front of one, and what separates them; None without."""
    context, languages = context_of(model), Languages.from_metadata(model.metadata)
    if not context.used:
        return None
    sides = model.vocabularies.source, model.vocabularies.target
    return {
        "source": context.source,
        "target": context.target,
        "max_length": context.max_length,
        "separators": [separator_of(side.size, languages) for side in sides],
    }


def _rounds(model: LoadedModel) -> int | None:
    """How often the encoder's graph runs its middle layers; None without recurrent depth."""
    if model.model.config.is_decoder_only or (recurrence := model.model.config.encoder.recurrence) is None:
        return None
    return stored_config(model).rounds or recurrence.rounds


def _as_translated(model: LoadedModel) -> TranslationModel:
    """The model with the groups and rounds that it is translated with."""
    (chosen,) = as_configured([model.model], stored_config(model))
    assert isinstance(chosen, TranslationModel)
    return chosen
