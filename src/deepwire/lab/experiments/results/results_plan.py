"""The plan of a results page: which systems are trained, on what, with which seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from deepwire.config.counts import Count
from deepwire.config.section import Section
from deepwire.data.languages import Direction, checked_language

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")]
"""Names become folders: lower-case letters, digits, hyphens and dots."""
DirectionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$")]
"""Those of directions may have what languages are written with besides: ``en-pt_BR``."""
TextName = DirectionName
ALL = "all"
"""The folder of models of all directions."""
OWN = "own"
"""The alternative that every system has: its settings as they are."""


def _without_null(value: object) -> object:
    """A mapping without the entries that a command line has taken out: ``directions.en-fr=null``."""
    if not isinstance(value, Mapping):
        return value
    return {name: entry for name, entry in value.items() if entry is not None}


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Puts the place in front of what is wrong there."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


Alternatives = Annotated[dict[Name, tuple[str, ...]], BeforeValidator(_without_null)]
"""Settings to choose from, by name."""


class SystemPlan(Section):
    """One system: what it changes in the base."""

    description: str = Field(default="", description="what it is, in a few words")
    one_model: bool = Field(
        default=False,
        description="one model for all directions of the plan (data.directions); otherwise a model for each",
    )
    base: str | None = Field(default=None, description="run file or recipe in place of the plan's base")
    both: tuple[str, ...] = Field(
        default=(),
        description="settings of both stacks: connection=pre_norm sets model.encoder.connection too",
    )
    settings: tuple[str, ...] = Field(default=(), description="more settings, as on the command line")
    alternatives: Alternatives | None = Field(
        default=None, description="what the search tries in this system, in place of search.alternatives"
    )
    tuned_as: str | None = Field(
        default=None,
        description="no trials of this system: it takes the alternative that the search took for another one",
    )

    def overrides(self) -> list[str]:
        """All settings as ``deepwire train`` takes them."""
        sides = ("encoder", "decoder")
        shared = [f"model.{side}.{setting}" for setting in self.both for side in sides]
        return [*shared, *self.settings]


class FamilyPlan(Section):
    """Settings that some systems share, with the reason: a schedule that suits them, say."""

    systems: tuple[str, ...] = Field(min_length=1, description="which systems; each in one family at most")
    settings: tuple[str, ...] = Field(min_length=1, description="what each of them begins with")
    why: str = Field(default="", description="the reason, for the page")


class SearchPlan(Section):
    """A search for the best settings of each system by short trials, before anything else is trained."""

    max_updates: Count = Field(
        ge=1, description="updates of a trial; what becomes of the warm-up, see shorten_warmup"
    )
    alternatives: Alternatives = Field(
        default={}, description=f"settings to try, by name; those of the system itself are tried as {OWN}"
    )
    settings: tuple[str, ...] = Field(default=(), description="what all trials set besides")
    shorten_warmup: bool = Field(
        default=True,
        description="shorten warm-up and length of the schedule in proportion; false: a trial is the "
        "beginning of the run that it stands for, where the schedule does not depend on that run's length",
    )
    seed: int = Field(default=1, ge=0, description="seed of all trials")
    direction: DirectionName | None = Field(
        default=None,
        description="direction of all trials, where a system has a model for each; default: the first",
    )


class ComparisonPlan(Section):
    """Two systems side by side in every direction."""

    title: str = Field(default="", description="what the two show; default: their names")
    system: str = Field(description="the system")
    baseline: str = Field(description="the system that it is tested against")

    @property
    def heading(self) -> str:
        """The title, or the names."""
        return self.title or f"{self.system} against {self.baseline}"


class Plan(Section):
    """What a results page is made of."""

    title: str = Field(default="Results", description="title of the page")
    about: str = Field(default="", description="a paragraph below the title: what was trained, and for whom")
    base: str = Field(description="run file or recipe that all systems start from")
    text: Path | None = Field(
        default=None, description="folder of the text; {text} in any setting of the plan stands for it"
    )
    settings: tuple[str, ...] = Field(default=(), description="settings of all systems")
    directions: Annotated[dict[DirectionName, tuple[str, ...]], BeforeValidator(_without_null)] = Field(
        min_length=1,
        description="translation directions, each with the settings of a model for it alone; like en-de "
        "where a system has one model for all; null takes one out",
    )
    systems: dict[Name, SystemPlan] = Field(min_length=1, description="systems, each with its settings")
    families: Annotated[dict[Name, FamilyPlan], BeforeValidator(_without_null)] = Field(
        default={}, description="settings that several systems share, with the reason"
    )
    search: SearchPlan | None = Field(
        default=None,
        description="try alternative settings of each system first, and take the best; null: do not, also "
        "where systems have alternatives of their own",
    )
    baseline: str = Field(description="the system that all others are tested against")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(1,), min_length=1, description="every system is trained once with each"
    )
    rounds: int = Field(
        default=2, ge=1, description="times that the test set is translated; the fastest counts"
    )
    samples: int = Field(
        default=1000, ge=100, description="least resamples of the significance tests; many systems need more"
    )
    comparisons: tuple[ComparisonPlan, ...] = Field(
        default=(),
        description="pairs of systems shown direction by direction; default, where a system has one model "
        "for all directions: each system and the baseline",
    )
    centre: str = Field(
        default="en", description="the language out of which and into which directions are averaged apart"
    )
    groups: dict[str, tuple[str, ...]] = Field(
        default={}, description="more averages of comparisons: names, each with its languages"
    )
    more_tests: Annotated[dict[TextName, str], BeforeValidator(_without_null)] = Field(
        default={},
        description="test sets besides data.test, by name: a prefix or the folder of OPUS-100, as "
        "evaluate-directions takes them, seen from this file",
    )
    claims: Path | None = Field(default=None, description="file of the papers' claims, seen from this file")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.baseline not in self.systems:
            raise ValueError(f"baseline: {self.baseline!r} is no system of this plan")
        if ALL in self.directions:
            raise ValueError(f"directions: {ALL!r} is the name of all of them together; take another")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: a seed is given twice")
        for pair in self.comparisons:
            for name in (pair.system, pair.baseline):
                if name not in self.systems:
                    raise ValueError(f"comparisons: {name!r} is no system of this plan")
            if pair.system == pair.baseline:
                raise ValueError(f"comparisons: {pair.system!r} is compared with itself")
        return self

    @model_validator(mode="after")
    def _languages_fit(self) -> Self:
        if not self.joint:
            return self
        known: set[str] = set()
        for name in self.directions:
            with _named(f"directions.{name}"):
                known.update(Direction.parse(name))
        places = {f"groups.{name}": languages for name, languages in self.groups.items()}
        if "centre" in self.model_fields_set:
            places["centre"] = (self.centre,)
        for place, languages in places.items():
            for language in languages:
                with _named(place):
                    if checked_language(language) not in known:
                        raise ValueError(f"no direction of this plan has {language!r}")
        return self

    @model_validator(mode="after")
    def _more_tests_fit(self) -> Self:
        if self.more_tests and self.joint:
            raise ValueError("more_tests: not where directions are shown together")
        return self

    @model_validator(mode="after")
    def _families_fit(self) -> Self:
        seen: dict[str, str] = {}
        for family, entry in self.families.items():
            for name in entry.systems:
                if name not in self.systems:
                    raise ValueError(f"families.{family}: {name!r} is no system of this plan")
                if name in seen:
                    raise ValueError(f"families.{family}: {name!r} is in families.{seen[name]} too")
                seen[name] = family
        return self

    @model_validator(mode="after")
    def _search_fits(self) -> Self:
        by_system = {
            f"systems.{name}": entry.alternatives
            for name, entry in self.systems.items()
            if entry.alternatives is not None
        }
        # search=null says that there shall be none; a plan that merely lacks it has forgotten it.
        if by_system and "search" not in self.model_fields_set:
            raise ValueError(
                f"{next(iter(by_system))}: has alternatives, but the plan has no search.max_updates"
            )
        every = {"search": self.search.alternatives if self.search is not None else {}, **by_system}
        for place, alternatives in every.items():
            if OWN in alternatives:
                raise ValueError(f"{place}.alternatives: {OWN!r} stands for the settings as they are")
        if self.search is not None and self.search.direction not in (None, *self.directions):
            raise ValueError(f"search.direction: {self.search.direction!r} is no direction of this plan")
        return self

    @model_validator(mode="after")
    def _tuning_fits(self) -> Self:
        for name, entry in self.systems.items():
            if entry.tuned_as is None:
                continue
            model = self.systems.get(entry.tuned_as)
            place = f"systems.{name}.tuned_as: {entry.tuned_as!r}"
            if model is None:
                raise ValueError(f"{place} is no system of this plan")
            if model.tuned_as is not None:
                raise ValueError(f"{place} has no trials of its own")
            if entry.alternatives is not None:
                raise ValueError(f"systems.{name}: has alternatives of its own, so tuned_as has no effect")
        return self

    def settings_of(self, system: str) -> tuple[str, ...]:
        """What a system sets besides what the whole plan does: its family's settings, then its own."""
        return (*self.family_settings(system), *self.systems[system].overrides())

    def family_settings(self, system: str) -> tuple[str, ...]:
        """What the family of a system sets; nothing where it is in none."""
        shared = (entry.settings for entry in self.families.values() if system in entry.systems)
        return next(shared, ())

    def alternatives_of(self, system: str) -> dict[str, tuple[str, ...]]:
        """What the search tries in a system, or in the one that it is tuned as: nothing, and each of its
        alternatives."""
        alternatives = self.systems[self.systems[system].tuned_as or system].alternatives
        shared = self.search.alternatives if self.search is not None else {}
        return {OWN: (), **(shared if alternatives is None else alternatives)}

    def parts(self) -> dict[str, tuple[str, ...]]:
        """What models are for, with the settings that make them so: ``all`` directions, and each of them."""
        together = (f"data.directions=[{', '.join(self.directions)}]",)
        return {ALL: together, **self.directions}

    def run_settings(self, system: str, part: str, alternative: str) -> tuple[str, ...]:
        """All that the plan sets in a run, as it is written here: no folder of a machine is in it.

        Args:
            system: Of the plan.
            part: A direction, or ``all``.
            alternative: Of the system.
        """
        changes = self.alternatives_of(system)[alternative]
        return (*self.settings, *self.parts()[part], *self.settings_of(system), *changes)

    @property
    def joint(self) -> bool:
        """Whether directions are shown together: a system has one model for all, or pairs are compared."""
        return bool(self.comparisons) or any(system.one_model for system in self.systems.values())

    @property
    def pairs(self) -> tuple[ComparisonPlan, ...]:
        """The comparisons to show."""
        others = [name for name in self.systems if name != self.baseline]
        return self.comparisons or tuple(
            ComparisonPlan(system=name, baseline=self.baseline) for name in others
        )
