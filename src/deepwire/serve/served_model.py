"""The model of a server: what it can be asked for, and translations of many clients' texts at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import WEIGHTS, metadata_of, read_config
from deepwire.data.languages import Direction, named_direction
from deepwire.decoding.model_inputs import MAX_PARALLEL_BATCHES, batches_by_length
from deepwire.decoding.model_loading import load
from deepwire.decoding.translation_io import Request, Translation
from deepwire.decoding.translator import Translator
from deepwire.errors import LogFn, ModelError, UsageError
from deepwire.serve.request import RequestError

# Texts are only divided among cores where each part is worth the trouble.
_FEWEST_TEXTS = 2


class Search(NamedTuple):
    """Settings that all texts of a batch share.

    Attributes:
        beam, n_best: Settings of the search.
        model: Which of the models translates.
        alignment: Whether translations are aligned with their texts.
        max_length_ratio, max_length_extra: Lower limits of length than those of the models; None: theirs.
    """

    beam: int
    n_best: int
    model: int = 0
    alignment: bool = False
    max_length_ratio: float | None = None
    max_length_extra: int | None = None


class ServedModel:
    """A translator, its name and its languages.

    Args:
        translator: Loaded models.
        name: What clients are told that the model is called.
        direction: The languages of a model with one direction, if they are known.
        stored_bytes: Size of its stored weights.
        reload: Loads the translator again after `unload`; None = it stays.

    Attributes:
        why_not_aligned: Why its translations cannot be aligned; empty if they can.
    """

    def __init__(
        self,
        translator: Translator,
        name: str,
        direction: Direction | None = None,
        *,
        stored_bytes: int = 0,
        reload: Callable[[], Translator] | None = None,
    ) -> None:
        self.name, self.stored_bytes = name, stored_bytes
        self._translator: Translator | None = translator
        self._direction, self._reload = direction, reload
        # What is known of a model while its weights are not there.
        self._config, self._languages = translator.config, translator.languages
        self.context, self._known = translator.context, _meaning(translator)
        self._vocabularies, self._device = translator.vocabularies, translator.device
        self.why_not_aligned = ""
        try:
            translator.aligning()
        except UsageError as error:
            self.why_not_aligned = error.message

    @property
    def loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._translator is not None

    def unload(self) -> None:
        """Give the memory of the weights back; the next translation loads them again."""
        if self._reload is not None:
            self._translator = None

    def load(self) -> Translator:
        """The translator, loaded if it is not there.

        Raises:
            ModelError: The files of the model are gone or damaged by now, or those of another one.
        """
        if self._translator is None:
            assert self._reload is not None
            translator = self._reload()
            if _meaning(translator) != self._known:
                raise ModelError(f"{self.name}: another model lies on disk now", "start the server again")
            self._translator = translator
        return self._translator

    @property
    def search(self) -> Search:
        """The search where a client asks for nothing."""
        return Search(self._config.beam, self._config.n_best)

    @property
    def longest(self) -> tuple[float, int]:
        """`max_length_ratio` and `max_length_extra`: no translation may be longer, whatever is asked for."""
        return self._config.max_length_ratio, self._config.max_length_extra

    @property
    def most_subwords(self) -> int:
        """Longer texts would be cut."""
        return self._config.max_source_length

    @property
    def several(self) -> bool:
        """Whether it has several directions, and reads for which a text is meant."""
        return self._languages is not None

    def directions(self) -> tuple[Direction, ...]:
        """The directions that the model was trained in; none where that is not known."""
        if self._languages is not None:
            return self._languages.directions
        return () if self._direction is None else (self._direction,)

    def into(self, target: str | None, source: str | None) -> tuple[str, str]:
        """The languages to give to the translator.

        Raises:
            RequestError: The model does not know them, or must be told one.
        """
        languages = self._languages
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
        return [len(ids) for ids in self._vocabularies.source.encode_lines(texts)]

    @property
    def cores(self) -> int:
        """How many batches are translated at a time."""
        if self._device.type != "cpu":
            return 1
        return min(torch.get_num_threads(), MAX_PARALLEL_BATCHES)

    def budget(self, search: Search) -> int:
        """Source subwords that are worth translating together."""
        return max(1, self.cores * self._config.batch_tokens // search.beam)

    def translate(
        self, requests: Sequence[Request], lengths: Sequence[int], search: Search
    ) -> list[Translation]:
        """Translations in order; on a CPU a batch of texts for each core."""
        tokens = self._batch_tokens(lengths, search.beam)
        ratio, extra = self.longest
        if search.max_length_ratio is not None:
            ratio = min(ratio, search.max_length_ratio)
        if search.max_length_extra is not None:
            extra = min(extra, search.max_length_extra)
        translator = self.load().with_search(
            beam=search.beam,
            n_best=search.n_best,
            batch_tokens=tokens,
            max_length_ratio=ratio,
            max_length_extra=extra,
        )
        translator = translator.aligning() if search.alignment else translator
        # Texts of many clients are no document: each brings its context.
        return list(translator.translations(requests, window=len(requests), documents=False))

    def _batch_tokens(self, lengths: Sequence[int], beam: int) -> int:
        """The smallest size of a batch with which there are no more batches than cores."""
        most = self._config.batch_tokens
        if len(lengths) < _FEWEST_TEXTS * self.cores:
            return most
        languages = self._languages
        marks = 1 + (languages is not None and languages.tags_source)  # EOS, a tag
        rows = [length + marks for length in lengths]
        tokens = sum(rows) // self.cores
        while tokens * beam < most and len(batches_by_length(rows, tokens)) > self.cores:
            tokens += tokens // 10 + 1
        return min(most, tokens * beam)


def _meaning(translator: Translator) -> tuple[object, ...]:
    """The facts that clients were told of a model or that their requests rest on, but for its weights."""
    settings = translator.direction, translator.languages, translator.context
    return *settings, translator.vocabularies.digest


def load_served_model(
    models: Sequence[str],
    device: str,
    precision: str,
    *,
    settings: Mapping[str, object],
    warn: LogFn,
    direction: Direction | None = None,
    terms: Path | None = None,
) -> ServedModel:
    """Load models, several as an ensemble, that always search: a server draws nothing at random.

    `direction` is that of a model that does not know it; `terms` is a file of terms.

    Raises:
        ModelError: A model is missing or damaged, or they do not fit.
        UsageError: A setting is impossible or not for servers, or the device does not exist.
    """
    searching = {"sampling": None, "n_best": 1}
    for name, why in (("sampling", "a server draws nothing at random"), ("n_best", "requests say it")):
        if name in settings:
            raise UsageError(f"decoding setting {name} is not for servers: {why}", "leave it out")

    def loaded() -> Translator:
        return load(models, device, precision, settings={**searching, **settings}, warn=warn, terms=terms)

    folders = [find_model(model) for model in models]
    direction = named_direction(metadata_of(read_config(folders[0]))) or direction
    # Where the models lie is nobody's business.
    name = " + ".join(Path(model).resolve().name for model in models)
    stored_bytes = sum((folder / WEIGHTS).stat().st_size for folder in folders)
    return ServedModel(loaded(), name, direction, stored_bytes=stored_bytes, reload=loaded)
