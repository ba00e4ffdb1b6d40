"""An exported model that our own search runs with: the host of ONNX graphs, or that with another model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Protocol

from deepwire.convert.export_format import ExportedModel
from deepwire.convert.host.graphs import Array, Tensors
from deepwire.convert.host.translator import NO_CONTEXT, Context, SubwordTranslator
from deepwire.convert.parity import numbers_of_pieces
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.decoding_config import DecodingConfig

# The settings of a search that the host knows; others are of deepwire's own alone.
_SETTINGS = (
    "beam",
    "n_best",
    "length_penalty",
    "length_penalty_form",
    "stop",
    "max_length_ratio",
    "max_length_extra",
    "min_length",
    "max_source_length",
    "no_repeat_ngram",
    "unknown_penalty",
    "batch_tokens",
)


def host_settings(config: DecodingConfig) -> dict[str, object]:
    """Settings that the host knows."""
    return {name: value for name, value in config.model_dump().items() if name in _SETTINGS}


class SteppedModel(Protocol):
    """A model that the search can step; see `deepwire.convert.host.graphs.GraphModel`."""

    def start(self, source: Array, languages: Array | None) -> tuple[Tensors, Tensors]:
        """Memory and first state."""

    def step(self, tokens: Array, position: int, memory: Tensors, state: Tensors) -> tuple[Array, Tensors]:
        """Log-probabilities and the next state."""


class HostOf(SubwordTranslator):
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
        self._source, self._target = (
            numbers_of_pieces(side) for side in (vocabularies.source, vocabularies.target)
        )
        self._pieces = vocabularies.target.pieces(range(vocabularies.target.size))

    def behind(self, contexts: Sequence[Context]) -> SearchedModel:
        """See the base class."""
        other = copy(self)
        other._contexts = contexts
        return other

    def translate(
        self, sources: Sequence[Sequence[str]], longest: int, language: str = ""
    ) -> list[list[str]]:
        """See the base class."""
        greedy = DecodingConfig(beam=1, length_penalty=0, max_length_ratio=0, max_length_extra=longest)
        return self.search(sources, greedy, language)

    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> list[list[str]]:
        """See the base class."""
        ids = [[self._source[piece] for piece in source] for source in sources]
        results = self._translator(host_settings(config)).translate_ids(ids, language, self._contexts)
        return [[self._pieces[number] for number in each[0].ids] for each in results]

    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        """See the base class."""
        translator = self._translator({})
        return [
            translator.score_ids(
                [self._source[piece] for piece in source],
                [self._target[piece] for piece in target],
                language,
                context,
            )
            for source, target, context in zip(
                sources, targets, self._contexts or [NO_CONTEXT] * len(sources), strict=True
            )
        ]

    def continued(
        self, prompts: Sequence[Sequence[int]], longest: int, config: DecodingConfig
    ) -> list[list[int]]:
        """See the base class."""
        results = self._translator(host_settings(config)).continue_ids(prompts, longest)
        return [each[0].ids for each in results]

    def score_texts(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """See the base class."""
        translator = self._translator({})
        return [translator.score_ids([], text) for text in texts]
