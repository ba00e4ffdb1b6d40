"""Exported models that are decoded by the host, the search that is shipped with exported graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Protocol

from deepwire.convert.export_format import ExportedModel, ids_of_pieces
from deepwire.convert.host.graphs import Array, Tensors
from deepwire.convert.host.translator import NO_CONTEXT, SETTINGS, Context, SubwordTranslator
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.decoding_config import DecodingConfig


def host_settings(config: DecodingConfig) -> dict[str, object]:
    """The decoding settings that the host supports."""
    return {name: value for name, value in config.model_dump().items() if name in SETTINGS}


class SteppedModel(Protocol):
    """A model that the host's search can use, as `deepwire.convert.host.graphs.GraphModel`."""

    def start(self, source: Array, languages: Array | None) -> tuple[Tensors, Tensors]:
        """Returns the memory and the first state."""

    def step(self, tokens: Array, position: int, memory: Tensors, state: Tensors) -> tuple[Array, Tensors]:
        """Returns log-probabilities and the next state."""


class InMemoryHost(SubwordTranslator):
    """The host with a model in memory instead of a folder of graphs."""

    def __init__(self, model: SteppedModel, manifest: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self.manifest, self.model = manifest, model  # type: ignore[assignment]
        self.settings = {**manifest["decoding"], **settings}
        self.settings["n_best"] = min(self.settings["n_best"], self.settings["beam"])


class SearchedModel(ExportedModel):
    """A model that the host decodes.

    Args:
        vocabulary: The folder of the vocabularies.
        make_translator: Makes a host with the given settings.
    """

    def __init__(
        self, vocabulary: Path, make_translator: Callable[[Mapping[str, object]], SubwordTranslator]
    ) -> None:
        self._make_translator = make_translator
        self._contexts: Sequence[Context] | None = None
        vocabularies = Vocabularies.load(vocabulary)
        self._source_ids = ids_of_pieces(vocabularies.source)
        self._target_ids = ids_of_pieces(vocabularies.target)
        self._pieces = vocabularies.target.pieces(range(vocabularies.target.size))

    def with_context(self, contexts: Sequence[Context]) -> SearchedModel:
        """A copy that decodes with contexts: the ids before each source and before its translation."""
        other = copy(self)
        other._contexts = contexts
        return other

    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> list[list[str]]:
        """The best translation of each source, after its context."""
        ids = [[self._source_ids[piece] for piece in source] for source in sources]
        results = self._make_translator(host_settings(config)).translate_ids(ids, language, self._contexts)
        return [[self._pieces[i] for i in hypotheses[0].ids] for hypotheses in results]

    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        """Log-probabilities of the subwords of each target and of EOS, after its context."""
        translator, contexts = self._make_translator({}), self._contexts or [NO_CONTEXT] * len(sources)
        scores = []
        for source, target, context in zip(sources, targets, contexts, strict=True):
            source_ids = [self._source_ids[piece] for piece in source]
            target_ids = [self._target_ids[piece] for piece in target]
            scores.append(translator.score_ids(source_ids, target_ids, language, context))
        return scores

    def continued(
        self, prompts: Sequence[Sequence[int]], longest: int, config: DecodingConfig
    ) -> list[list[int]]:
        """Continues the ids of each prompt of a language model; returns the ids that follow."""
        results = self._make_translator(host_settings(config)).continue_ids(prompts, longest)
        return [hypotheses[0].ids for hypotheses in results]

    def score_texts(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of the ids of texts without a source, and of EOS."""
        translator = self._make_translator({})
        return [translator.score_ids([], text) for text in texts]
