"""An exported model that our own search runs with: the host of graphs, or that with another model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Protocol

from deepwire.convert.export_format import ExportedModel, numbers_of_pieces
from deepwire.convert.host.graphs import Array, Tensors
from deepwire.convert.host.translator import NO_CONTEXT, SETTINGS, Context, SubwordTranslator
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.decoding_config import DecodingConfig


def host_settings(config: DecodingConfig) -> dict[str, object]:
    """Settings of a search that the host knows; others are of deepwire's own alone."""
    return {name: value for name, value in config.model_dump().items() if name in SETTINGS}


class SteppedModel(Protocol):
    """A model that the search can step; see `deepwire.convert.host.graphs.GraphModel`."""

    def start(self, source: Array, languages: Array | None) -> tuple[Tensors, Tensors]:
        """Memory and first state."""

    def step(self, tokens: Array, position: int, memory: Tensors, state: Tensors) -> tuple[Array, Tensors]:
        """Log-probabilities and the next state."""


class InMemoryHost(SubwordTranslator):
    """The host with a model that is there already: its graphs, opened before, or another in their place."""

    def __init__(self, model: SteppedModel, manifest: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self.manifest, self.model = manifest, model  # type: ignore[assignment]
        self.settings = {**manifest["decoding"], **settings}
        self.settings["n_best"] = min(self.settings["n_best"], self.settings["beam"])


class SearchedModel(ExportedModel):
    """A model that the host translates with.

    Args:
        vocabulary: The folder of the vocabularies.
        translator: Makes a host with some settings.
    """

    def __init__(
        self, vocabulary: Path, translator: Callable[[Mapping[str, object]], SubwordTranslator]
    ) -> None:
        self._translator = translator
        self._contexts: Sequence[Context] | None = None
        vocabularies = Vocabularies.load(vocabulary)
        self._source, self._target = map(numbers_of_pieces, (vocabularies.source, vocabularies.target))
        self._pieces = vocabularies.target.pieces(range(vocabularies.target.size))

    def behind(self, contexts: Sequence[Context]) -> SearchedModel:
        """The model for texts behind these: the numbers in front of each source, and of its translation."""
        other = copy(self)
        other._contexts = contexts
        return other

    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> list[list[str]]:
        """The best translation of each source, behind the contexts."""
        ids = [[self._source[piece] for piece in source] for source in sources]
        results = self._translator(host_settings(config)).translate_ids(ids, language, self._contexts)
        return [[self._pieces[number] for number in each[0].ids] for each in results]

    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        """Log-probability of each subword of each target and of EOS, behind the contexts."""
        translator, contexts = self._translator({}), self._contexts or [NO_CONTEXT] * len(sources)
        scores = []
        for source, target, context in zip(sources, targets, contexts, strict=True):
            read, written = [self._source[each] for each in source], [self._target[each] for each in target]
            scores.append(translator.score_ids(read, written, language, context))
        return scores

    def continued(
        self, prompts: Sequence[Sequence[int]], longest: int, config: DecodingConfig
    ) -> list[list[int]]:
        """Continue each prompt of a language model by our search; all as numbers of subwords."""
        results = self._translator(host_settings(config)).continue_ids(prompts, longest)
        return [each[0].ids for each in results]

    def score_texts(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of texts without a source, given as numbers, and of their ends."""
        translator = self._translator({})
        return [translator.score_ids([], text) for text in texts]
