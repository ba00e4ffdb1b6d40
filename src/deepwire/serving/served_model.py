"""The model of a server: what it can be asked for, and translations of many clients' texts at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import metadata_of, read_config
from deepwire.data.languages import Direction
from deepwire.decoding.model_inputs import MAX_PARALLEL_BATCHES, Warn, batches_by_length
from deepwire.decoding.model_loading import load
from deepwire.decoding.translation_io import Request, Translation
from deepwire.decoding.translator import Translator
from deepwire.errors import UsageError
from deepwire.model.decoder_state import DecoderState
from deepwire.serving.request_error import RequestError

# Texts are only divided among cores where each part is worth the trouble.
_FEWEST_TEXTS = 2


class Search(NamedTuple):
    """The settings that all texts of a batch share."""

    beam: int
    n_best: int


class ServedModel:
    """A translator, its name and its languages.

    Args:
        translator: Loaded models.
        name: What clients are told that the model is called.
        direction: The languages of a model with one direction, if they are known.
    """

    def __init__(
        self, translator: Translator[DecoderState], name: str, direction: Direction | None = None
    ) -> None:
        self.name = name
        self._translator = translator
        self._direction = direction

    @property
    def search(self) -> Search:
        """What is used where a client asks for nothing."""
        return Search(self._translator.config.beam, self._translator.config.n_best)

    @property
    def most_subwords(self) -> int:
        """Longer texts would be cut."""
        return self._translator.config.max_source_length

    def directions(self) -> tuple[Direction, ...]:
        """What the model was trained to translate; nothing where that is not known."""
        if self._translator.languages is not None:
            return self._translator.languages.directions
        return () if self._direction is None else (self._direction,)

    def languages(self) -> dict[str, object]:
        """What clients can choose."""
        several = self._translator.languages
        directions = self.directions()
        return {
            "several": several is not None,
            "sources": sorted({way.source for way in directions}),
            "targets": sorted({way.target for way in directions}),
            "directions": [[way.source, way.target] for way in directions],
        }

    def into(self, target: str | None, source: str | None) -> tuple[str, str]:
        """The languages to give to the translator.

        Raises:
            RequestError: The model does not know them, or must be told one.
        """
        languages = self._translator.languages
        if languages is None:
            known = self._direction or (None, None)
            for asked, name in ((source, known[0]), (target, known[1])):
                if asked is not None and asked != name:
                    raise RequestError(
                        "invalid", f"the model has one direction only, not {asked!r}: leave it out"
                    )
            return "", ""
        if target is None and len(languages.targets) > 1:
            raise RequestError("invalid", f"target: one of {', '.join(languages.targets)} is needed")
        target = languages.targets[0] if target is None else target
        try:
            languages.target(target)
            if source is not None:
                languages.require_source(source)
        except UsageError as error:
            raise RequestError("invalid", f"{error.message}: {error.hint}") from None
        return target, source or ""

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """How many subwords each text has."""
        return [len(ids) for ids in self._translator.vocabularies.source.encode_lines(texts)]

    @property
    def cores(self) -> int:
        """How many batches are translated at a time."""
        if self._translator.device.type != "cpu":
            return 1
        return min(torch.get_num_threads(), MAX_PARALLEL_BATCHES)

    def budget(self, search: Search) -> int:
        """Source subwords that are worth translating together."""
        return max(1, self.cores * self._translator.config.batch_tokens // search.beam)

    def translate(
        self, requests: Sequence[Request], lengths: Sequence[int], search: Search
    ) -> list[Translation]:
        """Translations in order; on a CPU a batch of texts for each core."""
        tokens = self._batch_tokens(lengths, search.beam)
        translator = self._translator.with_search(beam=search.beam, n_best=search.n_best, batch_tokens=tokens)
        return list(translator.translations(requests, window=len(requests)))

    def _batch_tokens(self, lengths: Sequence[int], beam: int) -> int:
        """The smallest size of a batch with which there are no more batches than cores."""
        most = self._translator.config.batch_tokens
        if len(lengths) < _FEWEST_TEXTS * self.cores:
            return most
        languages = self._translator.languages
        marks = 1 + (languages is not None and languages.tags_source)  # EOS, a tag
        rows = [length + marks for length in lengths]
        tokens = sum(rows) // self.cores
        while tokens * beam < most and len(batches_by_length(rows, tokens)) > self.cores:
            tokens += tokens // 10 + 1
        return min(most, tokens * beam)


def load_served_model(
    models: Sequence[str], device: str, precision: str, *, settings: Mapping[str, object], warn: Warn
) -> ServedModel:
    """Load models, several as an ensemble, that always search: a server draws nothing at random.

    Raises:
        ModelError: A model is missing or damaged, or they do not fit.
        UsageError: A setting is impossible, or the device does not exist.
    """
    searching = {"sampling": None, "n_best": 1}
    translator = load(models, device, precision, settings={**searching, **settings}, warn=warn)
    folder = find_model(models[0])
    metadata = metadata_of(read_config(folder))
    source, target = metadata.get("source"), metadata.get("target")
    known = isinstance(source, str) and isinstance(target, str)
    direction = Direction(str(source), str(target)) if known else None
    # Where the models lie is nobody's business.
    name = " + ".join(Path(model).resolve().name for model in models)
    return ServedModel(translator, name, direction)
