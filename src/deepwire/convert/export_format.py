"""The interface of a format of another program, and models that the numpy host decodes.

CONTRIBUTING.md says how to add a format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.plain import NEVER
from deepwire.convert.translate import SETTINGS, SubwordTranslator
from deepwire.data.vocabulary import BOS, Vocabularies, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_loading import context_of
from deepwire.errors import ModelError, UsageError


class ExportedModel(ABC):
    """A model as the other program has read it, to be compared with ours; text is segmented already.

    `language` is the one to translate into, of a model of several; else empty.
    """

    def searchable(self, config: DecodingConfig) -> DecodingConfig:
        """The settings nearest to these that `search` can have; both programs are compared with them."""
        return config

    @abstractmethod
    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> Sequence[Sequence[str]]:
        """The best translation of each source, greedily or by beam search; without UNK and EOS."""

    @abstractmethod
    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        """Natural log-probability of each subword of each target and of EOS."""


class ExportFormat(ABC):
    """A format to export to.

    Attributes:
        name: As in `--to`.
        packages: The libraries that it needs, first the one that runs its models; `extra` installs them.
        quantizations: Number formats of weights that it can store, the one as they are first.
        computes_the_same: Whether the other program makes the same operations in the same order, so that
            with weights as they are it is held to the same translations (`parity.Parity.fault`).
        has_language_models: Whether it has models without a source. What `search` reads are then the
            beginnings of texts, and what it gives their continuations.
        never: Symbols that have no probability there. deepwire never writes them either, but counts them in
            its softmax; so it is compared with `without_symbols`.
    """

    name: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    quantizations: tuple[str, ...]
    computes_the_same: bool = False
    has_language_models: bool = False
    never: tuple[int, ...] = ()

    def require(self, model: LoadedModel) -> None:
        """Check that the libraries are installed, and that the format has such models.

        Raises:
            ModelError: The format has no such model; names what it lacks.
            UsageError: A library is not installed.
        """
        if missing := [package for package in self.packages if find_spec(package) is None]:
            raise UsageError(
                f"--format {self.name} needs {', '.join(missing)}, which is not installed",
                f"pip install 'deepwire[{self.extra}]'",
            )
        if model.metadata.get("text") is not None and not self.has_language_models:
            raise ModelError(
                f"{model.folder}: is a language model, and {self.name} has none", "use --format onnx"
            )
        if context_of(model).used:
            raise ModelError(
                f"{model.folder}: was trained with data.context, and exported models translate line by line",
                "export a model that was trained without",
            )

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Differences there, one line each, for who exports the model; none as a rule."""
        return ()

    @abstractmethod
    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """Write a model that `require` let pass into an empty folder, with all that it needs."""

    @abstractmethod
    def read(self, folder: Path) -> ExportedModel:
        """The model of a folder that `write` has filled, read by the other program."""

    def version(self) -> str:
        """The other program and its version."""
        return f"{self.packages[0]} {version(self.packages[0])}"


def without_symbols(model: LoadedModel, symbols: Sequence[int]) -> LoadedModel:
    """A copy of the model that gives these symbols no probability, and the others what they leave."""
    inner = deepcopy(model.model)
    with torch.no_grad():
        if inner.head.bias is None:
            inner.head.bias = nn.Parameter(torch.zeros(inner.target_vocabulary))
        inner.head.bias[..., list(symbols)] = NEVER
    return replace(model, model=inner)


def ids_of_pieces(vocabulary: Vocabulary) -> dict[str, int]:
    """The number of each piece; where text looks like a symbol, that of the text."""
    return {piece: number for number, piece in enumerate(vocabulary.pieces(range(vocabulary.size)))}


def require_letters(model: LoadedModel, program: str) -> None:
    """Check that a program can have the model that knows no tags, and subwords by their letters alone.

    Raises:
        ModelError: The model has several languages, or text has what looks like a symbol.
    """
    if model.languages:
        raise ModelError(
            f"{model.folder}: a model of several languages, whose tags {program} does not know",
            "models of one direction can be exported",
        )
    for side, vocabulary in model.vocabularies.sides.items():
        pieces = vocabulary.pieces(range(vocabulary.size))
        if len(set(pieces)) < len(pieces):
            twice = next(piece for index, piece in enumerate(pieces) if piece in pieces[:index])
            raise ModelError(
                f"{model.folder}: the {side} vocabulary has {twice} twice, once as a symbol: {program} "
                "knows subwords by their letters alone"
            )


def host_settings(config: DecodingConfig) -> dict[str, object]:
    """The decoding settings that the host supports."""
    return {name: value for name, value in config.model_dump().items() if name in SETTINGS}


class HostedModel(ExportedModel):
    """A model that the host decodes, the search that is shipped with exported graphs.

    Args:
        vocabulary: The folder of the vocabularies.
        model: What computes.
        manifest: What the host must know of it.
    """

    def __init__(self, vocabulary: Path, model: object, manifest: Mapping[str, Any]) -> None:
        self._model, self._manifest = model, manifest
        vocabularies = Vocabularies.load(vocabulary)
        self._source_ids = ids_of_pieces(vocabularies.source)
        self._target_ids = ids_of_pieces(vocabularies.target)
        # In the documents of language models BOS is a line break, and a search has it behind all others.
        self._pieces = [*vocabularies.target.pieces(range(vocabularies.target.size)), "\n"]
        if self._host().is_language_model:
            self._source_ids = self._target_ids = self._target_ids | {"\n": BOS}

    def _host(self, settings: Mapping[str, object] | None = None) -> SubwordTranslator:
        return SubwordTranslator(self._model, self._manifest, settings)

    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> list[list[str]]:
        """The best translation of each source, or continuation of each beginning of a text."""
        host = self._host(host_settings(config))
        ids = [[self._source_ids[piece] for piece in source] for source in sources]
        if host.is_language_model:
            found = host.continue_ids(ids, config.max_length_extra)
        else:
            found = host.translate_ids(ids, language)
        return [[self._pieces[i] for i in hypotheses[0].ids] for hypotheses in found]

    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        """Log-probabilities of the subwords of each target and of EOS."""
        host, scores = self._host(), list[list[float]]()
        for source, target in zip(sources, targets, strict=True):
            source_ids = [self._source_ids[piece] for piece in source]
            target_ids = [self._target_ids[piece] for piece in target]
            if host.is_language_model:
                scores.append(host.score_ids([], [*source_ids, *target_ids])[len(source_ids) :])
            else:
                scores.append(host.score_ids(source_ids, target_ids, language))
        return scores
