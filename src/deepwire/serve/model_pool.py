"""The models of a server: what each can be asked for, and which of them translate a direction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import metadata_of, read_config, require_model
from deepwire.data.languages import Direction, closest_label, known_directions
from deepwire.decoding.model_inputs import MAX_PARALLEL_BATCHES, batches_by_length
from deepwire.decoding.model_loading import load
from deepwire.decoding.translation_io import Request, Translation
from deepwire.decoding.translator import Translator
from deepwire.errors import LogFn, UsageError
from deepwire.serve.request import RequestError

PIVOT = "en"
"""The language to translate through, where there are several."""
# Texts of a core below which dividing a batch among cores does not pay.
_FEWEST_TEXTS = 2


class Search(NamedTuple):
    """Settings that all texts of a batch share.

    Attributes:
        model: Translates.
        beam, n_best: Settings of the search.
        alignment: Whether translations are aligned with their texts.
    """

    model: ServedModel
    beam: int
    n_best: int
    alignment: bool = False


class ServedModel:
    """A translator, its name and its languages.

    Args:
        translator: Loaded models.
        name: What clients are told that the model is called.
        direction: The languages of a model with one direction, if they are known.

    Attributes:
        why_not_aligned: Why its translations cannot be aligned; empty if they can.
        context: The lines of a document that it reads in front of a line.
        most_subwords: Longer texts would be cut.
        several: Whether it has several directions, and needs the languages of a text.
    """

    def __init__(self, translator: Translator, name: str, direction: Direction | None = None) -> None:
        self.name = name
        self._translator, self._direction = translator, direction
        self.context = translator.context
        self.most_subwords = translator.config.max_source_length
        self.several = translator.languages is not None
        self.why_not_aligned = ""
        try:
            translator.aligning()
        except UsageError as error:
            self.why_not_aligned = error.message

    @property
    def search(self) -> Search:
        """The search where a client asks for nothing."""
        return Search(self, self._translator.config.beam, self._translator.config.n_best)

    def directions(self) -> tuple[Direction, ...]:
        """The directions that the model was trained in; none where that is not known."""
        if self._translator.languages is not None:
            return self._translator.languages.directions
        return () if self._direction is None else (self._direction,)

    def languages_of(self, target: str | None, source: str | None) -> tuple[str, str]:
        """The target and the source language, as the translator takes them; "" where it needs none.

        Raises:
            RequestError: The model does not know them, or needs one that is missing.
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
        """Source subwords to collect for one batch of each core."""
        return max(1, self.cores * self._translator.config.batch_tokens // search.beam)

    def translate(
        self, requests: Sequence[Request], lengths: Sequence[int], search: Search
    ) -> list[Translation]:
        """Translations in order; on a CPU a batch of texts for each core."""
        translator = self._translator.with_search(
            beam=search.beam, n_best=search.n_best, batch_tokens=self._batch_tokens(lengths, search.beam)
        )
        translator = translator.aligning() if search.alignment else translator
        # Texts of many clients are no document: each brings its context.
        return list(translator.translations(requests, window=len(requests), documents=False))

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


class Leg(NamedTuple):
    """A step from one language to another, by one model.

    Attributes:
        model: Translates.
        direction: From which language to which; None where that is not known.
        to, from_: Target and source as the translator takes them.
    """

    model: ServedModel
    direction: Direction | None
    to: str = ""
    from_: str = ""


Route = tuple[Leg, ...]
"""One leg, or two through a common language."""


def target_of(route: Route) -> str:
    """The language that comes out; empty = not known."""
    direction = route[-1].direction
    return "" if direction is None else direction.target


def why_not_aligned(route: Route) -> str:
    """Why translations along a route cannot be aligned; empty if they can."""
    return next(filter(None, (leg.model.why_not_aligned for leg in route)), "")


class ModelPool:
    """Several models, each for directions of its own.

    Where no model translates a direction, two do it through a common language, English if possible.

    Args:
        models: At least one; of two that translate the same direction, the first is used.

    Attributes:
        name: The name that clients are told.
        search: The search where a client asks for nothing: that of the first model.
        routes: All that can be translated, directly or through a common language.
        fewest_subwords: The length that every model reads without cutting it.
        aligns: Whether all translations can be aligned with their texts.

    Raises:
        UsageError: There are several, and the languages of one are not known.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._models = tuple(models)
        direct: dict[Direction, Leg] = {}
        for model in self._models:
            if len(self._models) > 1 and not model.directions():
                raise UsageError(
                    f"{model.name}: it is not known which languages it translates",
                    "serve it alone, or name the direction: de-en=MODEL",
                )
            for direction in model.directions():
                told = (direction.target, direction.source) if model.several else ("", "")
                direct.setdefault(direction, Leg(model, direction, *told))
        self.name = ", ".join(model.name for model in self._models)
        self.search = self._models[0].search
        self.routes: Mapping[Direction, Route] = dict(_routes(direct))
        self.fewest_subwords = min(model.most_subwords for model in self._models)
        self.aligns = not any(model.why_not_aligned for model in self._models)

    def languages(self) -> dict[str, object]:
        """The languages that clients can choose; of one model the directions that it was trained in.

        `through` has source, target and the common language between them; `others` says whether other
        directions can be tried.
        """
        single = len(self._models) == 1
        directions = self._models[0].directions() if single else tuple(self.routes)
        through = [
            [*direction, target_of(route[:1])] for direction, route in self.routes.items() if len(route) > 1
        ]
        return {
            "several": not single or self._models[0].several,
            "sources": sorted({direction.source for direction in directions}),
            "targets": sorted({direction.target for direction in directions}),
            "directions": [[direction.source, direction.target] for direction in directions],
            "through": [] if single else through,
            "others": single,
        }

    def route(self, target: str | None, source: str | None) -> Route:
        """The legs of a translation; one model alone also tries directions that it was not trained in.

        Raises:
            RequestError: No model knows the languages, or one is needed that was not given.
        """
        target, source = self.label(target), self.label(source)
        if len(self._models) == 1:
            return self._route_of_one(target, source)
        fitting = [
            direction
            for direction in self.routes
            if target in (None, direction.target) and source in (None, direction.source)
        ]
        if len(fitting) == 1:
            return self.routes[fitting[0]]
        known = f"the directions are {', '.join(map(str, self.routes))}"
        if fitting:
            missing = "target" if target is None else "source"
            raise RequestError("invalid", f"{missing}: is needed; {known}")
        raise RequestError("invalid", f"there is no direction {source or '?'}-{target or '?'}; {known}")

    def label(self, name: str | None) -> str | None:
        """The language that a client means, as the models call it."""
        labels = {label for direction in self.routes for label in direction}
        return None if name is None else closest_label(name, labels)

    def _route_of_one(self, target: str | None, source: str | None) -> Route:
        (model,) = self._models
        to, from_ = model.languages_of(target, source)
        known = model.directions()
        direction = Direction(source, target) if source and target else known[0] if len(known) == 1 else None
        return (Leg(model, direction, to, from_),)


def _routes(direct: Mapping[Direction, Leg]) -> Iterable[tuple[Direction, Route]]:
    """All that can be translated: direct ones first, then those through a common language."""
    yield from ((direction, (leg,)) for direction, leg in sorted(direct.items(), key=lambda item: item[0]))
    sources = sorted({direction.source for direction in direct})
    targets = sorted({direction.target for direction in direct})
    middles = sorted(set(sources) & set(targets), key=lambda name: (name != PIVOT, name))
    for source in sources:
        for target in targets:
            if source == target or (source, target) in direct:
                continue
            ways = ((Direction(source, middle), Direction(middle, target)) for middle in middles)
            way = next((way for way in ways if direct.keys() >= set(way)), None)
            if way is not None:
                yield Direction(source, target), (direct[way[0]], direct[way[1]])


def load_pool(
    names: Sequence[str],
    device: str,
    precision: str,
    *,
    settings: Mapping[str, object],
    warn: LogFn,
    terms: Path | None = None,
) -> ModelPool:
    """Load models; those of the same directions act together as an ensemble.

    They always search: a server draws nothing at random.

    Args:
        names: MODEL names; SRC-TGT=MODEL names the direction of one that does not know it.
        device, precision, settings, warn: As in `deepwire.decoding.model_loading.load`.
        terms: File of terms, for the only direction or model.

    Raises:
        ModelError: A model is missing or damaged, or those of an ensemble do not fit.
        UsageError: A setting is impossible, not for servers or has no effect, or as in `ModelPool`.
    """
    for name, why in (("sampling", "a server draws nothing at random"), ("n_best", "requests say it")):
        if name in settings:
            raise UsageError(f"decoding setting {name} is not for servers: {why}", "leave it out")
    groups: dict[frozenset[Direction], list[str]] = {}
    named: dict[frozenset[Direction], Direction | None] = {}
    for typed in names:
        model, direction = _named_model(typed)
        directions = _directions(model, direction)
        groups.setdefault(directions, []).append(model)
        named.setdefault(directions, direction)
    if terms is not None and len(groups) > 1:
        raise UsageError(
            f"--terms {terms}: with models of several directions it is not said which one has them"
        )
    loaded: list[ServedModel] = []
    searching = {"sampling": None, "n_best": 1, **settings}
    for directions, models in groups.items():
        translator = load(models, device, precision, settings=searching, warn=warn, terms=terms)
        # Clients are told names of folders, no paths of this machine.
        shown = " + ".join(Path(model).resolve().name for model in models)
        known = named[directions] if translator.direction is None else Direction(*translator.direction)
        loaded.append(ServedModel(translator, shown, known))
    return ModelPool(loaded)


def _named_model(name: str) -> tuple[str, Direction | None]:
    """A model as people type it: MODEL, or SRC-TGT=MODEL where it does not know its direction."""
    before, equals, model = name.partition("=")
    if not equals or "/" in before or Path(name).exists():
        return name, None
    try:
        return model, Direction.parse(before)
    except ValueError as fault:
        raise UsageError(f"{name}: {fault}") from None


def _directions(model: str, named: Direction | None) -> frozenset[Direction]:
    """The directions of a stored model, or the one that it was given."""
    folder = find_model(model)
    require_model(folder)
    known = frozenset(known_directions(metadata_of(read_config(folder))))
    if not known:
        return frozenset() if named is None else frozenset([named])
    if named is not None and known != {named}:
        raise UsageError(f"{named}={model}: the model translates {', '.join(sorted(map(str, known)))}")
    return known
