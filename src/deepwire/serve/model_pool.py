"""The models of a server: which of them translate a direction, and which are in memory."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import metadata_of, read_config, require_model
from deepwire.data.context import ContextConfig
from deepwire.data.languages import Direction, closest_label, known_directions
from deepwire.decoding.translation_io import Request, Translation
from deepwire.errors import LogFn, UsageError
from deepwire.ops.allocator import give_memory_back
from deepwire.serve.request import RequestError
from deepwire.serve.served_model import Search, ServedModel, load_served_model

PIVOT = "en"
"""The common language that is preferred where there are several."""

log = logging.getLogger("deepwire.serve")


class Leg(NamedTuple):
    """A step from one language to another, by one model.

    Attributes:
        model: Its place in the pool.
        direction: From which language to which; None where that is not known.
        to, from_: What the model is told of them.
    """

    model: int
    direction: Direction | None
    to: str = ""
    from_: str = ""


Route = tuple[Leg, ...]
"""One leg, or two through a common language."""


class ModelPool:
    """Several models, each for directions of its own.

    Where no model translates a direction, two do it through a common language. Only the thread that
    translates may call `translate`; it loads what is needed, and drops what was not used for longest where
    the limit would be passed.

    Args:
        models: At least one; of two that translate the same direction, the first is used.
        memory: Bytes of stored weights that may be in memory at a time; None = all.
        pivot: The only common language that is allowed; None = any, preferably English.

    Attributes:
        routes: All that can be translated, directly or through a common language.

    Raises:
        UsageError: There are several, and the languages of one are not known; or one alone passes the limit.
    """

    def __init__(
        self, models: Sequence[ServedModel], memory: int | None = None, pivot: str | None = None
    ) -> None:
        self._models, self._memory = tuple(models), memory
        direct: dict[Direction, Leg] = {}
        for place, model in enumerate(self._models):
            if len(self._models) > 1 and not model.directions():
                raise UsageError(
                    f"{model.name}: it is not known which languages it translates",
                    "serve it alone, or name the direction: de-en=MODEL",
                )
            if memory is not None and model.stored_bytes > memory:
                raise UsageError(
                    f"{model.name}: its weights have {model.stored_bytes:,} bytes, more than --memory allows"
                )
            for direction in model.directions():
                told = (direction.target, direction.source) if model.several else ("", "")
                direct.setdefault(direction, Leg(place, direction, *told))
        self._used = dict.fromkeys(range(len(self._models)), 0.0)
        self.routes: Mapping[Direction, Route] = dict(_routes(direct, pivot))

    @property
    def name(self) -> str:
        """The name that clients are told."""
        return ", ".join(model.name for model in self._models)

    @property
    def search(self) -> Search:
        """The search where a client asks for nothing: that of the first model."""
        return self._models[0].search

    def languages(self) -> dict[str, object]:
        """The languages that clients can choose; of one model the directions that it was trained in.

        `through` has source, target and the common language between them; `others` says whether other
        directions can be tried.
        """
        single = len(self._models) == 1
        directions = self._models[0].directions() if single else tuple(self.routes)
        through = [
            [*direction, route[0].direction.target]
            for direction, route in self.routes.items()
            if len(route) > 1 and route[0].direction is not None
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
        """How to translate; one model alone also tries directions that it was not trained in.

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
        to, from_ = self._models[0].into(target, source)
        known = self._models[0].directions()
        direction = Direction(source, target) if source and target else known[0] if len(known) == 1 else None
        return (Leg(0, direction, to, from_),)

    def lengths(self, leg: Leg, texts: Sequence[str]) -> list[int]:
        """How many subwords each text has for the model of a leg."""
        return self._models[leg.model].lengths(texts)

    def context(self, leg: Leg) -> ContextConfig:
        """The context that the model of a leg reads in front of a line."""
        return self._models[leg.model].context

    def reads_in_order(self, route: Route) -> bool:
        """Whether a model of a route reads the lines of a document in front of a line."""
        return any(self.context(leg).used for leg in route)

    def most_subwords(self, leg: Leg) -> int:
        """The longest text that the model of a leg reads without cutting it."""
        return self._models[leg.model].most_subwords

    @property
    def fewest_subwords(self) -> int:
        """The length that every model reads without cutting it."""
        return min(model.most_subwords for model in self._models)

    @property
    def longest(self) -> tuple[float, int]:
        """The largest `max_length_ratio` and `max_length_extra` of all models."""
        ratios, extras = zip(*(model.longest for model in self._models), strict=True)
        return max(ratios), max(extras)

    def why_not_aligned(self, route: Route) -> str:
        """Why translations along a route cannot be aligned; empty if they can."""
        return next(filter(None, (self._models[leg.model].why_not_aligned for leg in route)), "")

    @property
    def aligns(self) -> bool:
        """Whether all translations can be aligned with their texts."""
        return not any(model.why_not_aligned for model in self._models)

    def budget(self, search: Search) -> int:
        """Source subwords that are worth translating together."""
        return self._models[search.model].budget(search)

    def translate(
        self, requests: Sequence[Request], lengths: Sequence[int], search: Search
    ) -> list[Translation]:
        """Translations in order, by the model that `search` names."""
        model = self._models[search.model]
        if not model.loaded:
            self._make_room(model)
            log.info("loading %s", model.name)
            model.load()
        self._used[search.model] = time.monotonic()
        return model.translate(requests, lengths, search)

    def _make_room(self, needed: ServedModel) -> None:
        if self._memory is None:
            return
        for place in sorted(self._used, key=self._used.__getitem__):
            in_use = sum(model.stored_bytes for model in self._models if model.loaded and model is not needed)
            if in_use + needed.stored_bytes <= self._memory:
                return
            if self._models[place].loaded:
                log.info("unloading %s", self._models[place].name)
                self._models[place].unload()
                gc.collect()
                give_memory_back()


def _routes(direct: Mapping[Direction, Leg], pivot: str | None) -> Iterable[tuple[Direction, Route]]:
    """All that can be translated: direct ones first, then those through a common language."""
    yield from ((direction, (leg,)) for direction, leg in sorted(direct.items()))
    sources = sorted({direction.source for direction in direct})
    targets = sorted({direction.target for direction in direct})
    middles = sorted(set(sources) & set(targets), key=lambda name: (name != PIVOT, name))
    middles = [name for name in middles if pivot in (None, name)]
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
    memory: int | None = None,
    pivot: str | None = None,
    terms: Path | None = None,
) -> ModelPool:
    """Load models; those of the same directions act together as an ensemble.

    With a limit of memory each is loaded once, so that what is wrong is said now; only the last one stays.

    Args:
        names: MODEL names; SRC-TGT=MODEL names the direction of one that does not know it.
        device, precision, settings, warn: As in `deepwire.decoding.model_loading.load`.
        memory, pivot: As in `ModelPool`.
        terms: File of terms, for the only direction or model.

    Raises:
        ModelError: A model is missing or damaged, or those of an ensemble do not fit.
        UsageError: A setting is impossible or has no effect, or as in `ModelPool`.
    """
    groups: dict[frozenset[Direction], list[str]] = {}
    named: dict[frozenset[Direction], Direction | None] = {}
    for name in names:
        model, direction = _named_model(name)
        directions = _directions(model, direction)
        groups.setdefault(directions, []).append(model)
        named.setdefault(directions, direction)
    if terms is not None and len(groups) > 1:
        raise UsageError(
            f"--terms {terms}: with models of several directions it is not said which one has them"
        )
    for option, value in (("--memory", memory), ("--pivot", pivot)):
        if value is not None and len(groups) == 1:
            raise UsageError(f"{option} has an effect only with models of several directions")
    known = {label for directions in groups for direction in directions for label in direction}
    if pivot is not None and pivot not in known:
        raise UsageError(f"--pivot {pivot}: the models know {', '.join(sorted(known))}")
    loaded: list[ServedModel] = []
    for directions, models in groups.items():
        for other in loaded if memory is not None else ():
            other.unload()
        loaded.append(
            load_served_model(
                models,
                device,
                precision,
                settings=settings,
                warn=warn,
                direction=named[directions],
                terms=terms,
            )
        )
    return ModelPool(loaded, memory, pivot)


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
    """The directions of a stored model, or the one that it was given.

    Raises:
        UsageError: It is a model of other directions.
    """
    folder = find_model(model)
    require_model(folder)
    known = frozenset(known_directions(metadata_of(read_config(folder))))
    if not known:
        return frozenset() if named is None else frozenset([named])
    if named is not None and known != {named}:
        raise UsageError(f"{named}={model}: the model translates {', '.join(sorted(map(str, known)))}")
    return known
