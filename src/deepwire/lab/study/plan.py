"""The plan of a study: which systems are trained, on what, how far, and what is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from deepwire.config.counts import Count
from deepwire.config.section import Section
from deepwire.config.settings_reader import absolute, read_settings
from deepwire.errors import UsageError
from deepwire.runfile import locate

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")]
"""Names become folders: lower-case letters, digits, hyphens and dots."""
DirectionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$")]
ALL = "all"
"""The part of models of all directions."""
OWN = "own"
"""The alternative that every system has: its settings as they are."""
END = "end"
"""The budget of a plan that names none: each run goes to its own end."""


def _without_null(value: object) -> object:
    """A mapping without the entries that a command line has taken out: ``directions.en-fr=null``."""
    if not isinstance(value, Mapping):
        return value
    return {name: entry for name, entry in value.items() if entry is not None}


Alternatives = Annotated[dict[Name, tuple[str, ...]], BeforeValidator(_without_null)]


class SystemPlan(Section):
    """One system: what it changes in the base."""

    description: str = Field(default="", description="what it is, in a few words")
    one_model: bool = Field(default=False, description="one model for all directions, not one for each")
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
        default=None, description="no trials of its own: it takes what the search took for another system"
    )

    def overrides(self) -> tuple[str, ...]:
        """All settings as ``deepwire train`` takes them."""
        sides = ("encoder", "decoder")
        shared = (f"model.{side}.{setting}" for setting in self.both for side in sides)
        return (*shared, *self.settings)


class SearchPlan(Section):
    """A search for the best settings of each system by short trials, before its runs."""

    max_updates: Count = Field(ge=1, description="updates of a trial")
    alternatives: Alternatives = Field(
        default={}, description=f"settings to try, by name; those of the system itself are tried as {OWN}"
    )
    settings: tuple[str, ...] = Field(default=(), description="what all trials set besides")
    shorten_warmup: bool = Field(
        default=True,
        description="shorten warm-up and length of the schedule in proportion; false: a trial is the "
        "beginning of the run",
    )
    seed: int = Field(default=1, ge=0, description="seed of all trials")
    direction: DirectionName | None = Field(
        default=None, description="direction of trials of systems with a model for each; default: the first"
    )


class ComparisonPlan(Section):
    """Two systems to compare."""

    system: str = Field(description="the system")
    baseline: str = Field(description="the system that it is tested against")
    question: str = Field(default="", description="what the pair is to decide; questions share a figure")
    paper: str = Field(default="", description="what a paper says of the two")


class Plan(Section):
    """The settings of a study."""

    title: str = Field(default="Study", description="heading on the page")
    about: str = Field(default="", description="paragraphs below the heading")
    base: str = Field(description="run file or recipe that all systems start from")
    text: Path | None = Field(
        default=None, description="folder of the text; {text} in any setting stands for it"
    )
    settings: tuple[str, ...] = Field(default=(), description="settings of all systems")
    directions: Annotated[dict[DirectionName, tuple[str, ...]], BeforeValidator(_without_null)] = Field(
        min_length=1,
        description="translation directions, each with the settings of a model for it alone; null takes one "
        "out",
    )
    systems: dict[Name, SystemPlan] = Field(min_length=1, description="systems, each with its settings")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(1,), min_length=1, description="every system is trained once with each"
    )
    budgets: tuple[Annotated[Count, Field(ge=1)], ...] = Field(
        default=(), description="updates at which systems are compared; default: where each run ends"
    )
    average: int | None = Field(
        default=None, ge=1, description="translate with the mean of so many last checkpoints; null: the best"
    )
    baseline: str = Field(description="the system that all others are tested against")
    comparisons: tuple[ComparisonPlan, ...] = Field(
        default=(), description="pairs to test; default: each system and the baseline"
    )
    search: SearchPlan | None = Field(
        default=None, description="trials of settings; null: none, also where systems have alternatives"
    )
    more_tests: Annotated[dict[DirectionName, str], BeforeValidator(_without_null)] = Field(
        default={},
        description="test sets besides data.test, by name: a prefix or the folder of OPUS-100, seen from "
        "this file",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_plan(cls, values: object) -> object:
        if isinstance(values, Mapping) and "base" not in values and {"model", "training"} & values.keys():
            raise ValueError("is a run file, not the plan of a study: a plan names one as its base")
        return values

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        named: dict[str, tuple[str, ...]] = {"baseline": (self.baseline,)}
        named |= {"comparisons": tuple(each for c in self.comparisons for each in (c.system, c.baseline))}
        for place, names in named.items():
            for name in names:
                if name not in self.systems:
                    raise ValueError(f"{place}: {name!r} is no system of this plan")
        for pair in self.comparisons:
            if pair.system == pair.baseline:
                raise ValueError(f"comparisons: {pair.system!r} is compared with itself")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: a seed is given twice")
        if list(self.budgets) != sorted(set(self.budgets)):
            raise ValueError("budgets: write them in rising order")
        if ALL in self.directions:
            raise ValueError(f"directions: {ALL!r} is the name of all of them together")
        return self

    @model_validator(mode="after")
    def _search_fits(self) -> Self:
        for name, entry in self.systems.items():
            if OWN in (entry.alternatives or {}):
                raise ValueError(f"systems.{name}.alternatives: {OWN!r} stands for the settings as they are")
            # search=null says that there shall be none; a plan that merely lacks it has forgotten it.
            if entry.alternatives and "search" not in self.model_fields_set:
                raise ValueError(f"systems.{name}: has alternatives, but the plan has no search.max_updates")
            model = self.systems.get(entry.tuned_as or name)
            if model is None or (entry.tuned_as and (model.tuned_as or entry.alternatives is not None)):
                raise ValueError(f"systems.{name}.tuned_as: names no system with trials of its own")
        if self.search is not None:
            if OWN in self.search.alternatives:
                raise ValueError(f"search.alternatives: {OWN!r} stands for the settings as they are")
            if self.search.direction not in (None, *self.directions):
                raise ValueError(f"search.direction: {self.search.direction!r} is no direction of this plan")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """Names of the budgets, in the order in which runs reach them."""
        return tuple(map(str, self.budgets)) or (END,)

    @property
    def pairs(self) -> tuple[ComparisonPlan, ...]:
        """The pairs to test."""
        others = [name for name in self.systems if name != self.baseline]
        return self.comparisons or tuple(
            ComparisonPlan(system=name, baseline=self.baseline) for name in others
        )

    def parts(self, system: str) -> tuple[str, ...]:
        """The parts that a system has a model for: ``all`` directions, or each of them."""
        return (ALL,) if self.systems[system].one_model else tuple(self.directions)

    def alternatives_of(self, system: str) -> dict[str, tuple[str, ...]]:
        """The alternatives that the search tries in a system, or in the one that it is tuned as."""
        own = self.systems[self.systems[system].tuned_as or system].alternatives
        shared = self.search.alternatives if self.search is not None else {}
        return {OWN: (), **(shared if own is None else own)}

    def trials(self) -> Iterator[tuple[str, str]]:
        """System and alternative of each trial; none of systems that have nothing to choose from."""
        for system, entry in self.systems.items():
            names = self.alternatives_of(system)
            if self.search is not None and entry.tuned_as is None and len(names) > 1:
                yield from ((system, name) for name in names)

    def trial_part(self, system: str) -> str:
        """The part that the trials of a system have a model for."""
        search = self.search
        chosen = search.direction if search is not None else None
        return ALL if self.systems[system].one_model else chosen or next(iter(self.directions))

    def base_of(self, system: str) -> str:
        """The run file or recipe that a system starts from."""
        return self.systems[system].base or self.base

    def run_settings(self, system: str, part: str, alternative: str) -> tuple[str, ...]:
        """All that the plan sets in a run, as it is written here: no folder of a machine is in it."""
        together = (f"data.directions=[{', '.join(self.directions)}]",)
        of_part = together if part == ALL else self.directions[part]
        changes = self.alternatives_of(system)[alternative]
        return (*self.settings, *of_part, *self.systems[system].overrides(), *changes)

    def trial_settings(self, system: str, alternative: str) -> tuple[str, ...]:
        """All that the plan sets in a trial, without what becomes of the warm-up."""
        assert self.search is not None
        settings = self.run_settings(system, self.trial_part(system), alternative)
        return (*settings, f"training.max_updates={self.search.max_updates}", *self.search.settings)


def read_plan(path: Path, overrides: tuple[str, ...] = ()) -> Plan:
    """Read a plan; its test sets have absolute paths then, unless they begin with ``{text}``.

    Raises:
        UsageError: It is missing, or anything in it is wrong.
    """
    if path.suffix not in {".yaml", ".yml"}:
        raise UsageError(f"{path}: a plan is a .yaml file", "see examples/studies/multi30k.yaml")
    settings = read_settings(Plan, str(path), overrides, locate=locate)
    plan, home = settings.section, settings.document.path.parent
    for override in overrides:
        name = override.partition("=")[0].strip()
        if name.startswith("directions.") and override.endswith("=null"):
            known = read_settings(Plan, str(path), (), locate=locate).section.directions
            if name.removeprefix("directions.") not in known:
                raise UsageError(f"{override}: the plan has no such direction", f"it has {', '.join(known)}")
    tests = {
        name: place if "{text}" in place else str(absolute(Path(place), home))
        for name, place in plan.more_tests.items()
    }
    return plan.model_copy(update={"more_tests": tests})
