"""The plan of a results page: which systems are trained, on what, with which seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from deepwire.config.base import Section
from deepwire.config.reader import absolute, read_settings
from deepwire.data.languages import Direction, checked_language
from deepwire.errors import UsageError
from deepwire.results.claims import Claim, read_claims
from deepwire.runfile import LoadedRunFile, load_run_file, locate

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")]
"""Names become folders: lower-case letters, digits, hyphens and dots."""
DirectionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$")]
"""Those of directions may have what languages are written with besides: ``en-pt_BR``."""
_ALL = "all"
_TEXT = "{text}"


def _without_null(value: object) -> object:
    """A mapping without the entries that a command line has taken out: ``directions.en-fr=null``."""
    if not isinstance(value, Mapping):
        return value
    return {name: entry for name, entry in value.items() if entry is not None}


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

    def overrides(self) -> list[str]:
        """All settings as ``deepwire train`` takes them."""
        sides = ("encoder", "decoder")
        shared = [f"model.{side}.{setting}" for setting in self.both for side in sides]
        return [*shared, *self.settings]


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
    baseline: str = Field(description="the system that all others are tested against")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(1,), min_length=1, description="every system is trained once with each"
    )
    rounds: int = Field(
        default=2, ge=1, description="times that the test set is translated; the fastest counts"
    )
    samples: int = Field(default=1000, ge=100, description="resamples of the significance tests")
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
    claims: Path | None = Field(default=None, description="file of the papers' claims, seen from this file")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.baseline not in self.systems:
            raise ValueError(f"baseline: {self.baseline!r} is no system of this plan")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: a seed is given twice")
        for pair in self.comparisons:
            for name in (pair.system, pair.baseline):
                if name not in self.systems:
                    raise ValueError(f"comparisons: {name!r} is no system of this plan")
            if pair.system == pair.baseline:
                raise ValueError(f"comparisons: {pair.system!r} is compared with itself")
        if self.joint:
            for name in (self.centre, *(language for group in self.groups.values() for language in group)):
                checked_language(name)
            for name in self.directions:
                Direction.parse(name)
        return self

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


@dataclass(frozen=True)
class RunPlan:
    """One run: the training of one model, for one direction or for all.

    Attributes:
        directions: What the model is scored in.
        system: Which one it is a model of.
        seed: Of the run.
        part: The direction, or ``all``.
        folder: Its run directory.
        base: Run file or recipe.
        overrides: Settings on top of the base.
        loaded: The checked run file.
    """

    directions: tuple[str, ...]
    system: str
    seed: int
    part: str
    folder: Path
    base: str
    overrides: tuple[str, ...]
    loaded: LoadedRunFile

    @property
    def name(self) -> str:
        """As it is shown: ``all.residual.1``."""
        return f"{self.part}.{self.system}.{self.seed}"

    def label(self, direction: str) -> str:
        """One direction of it, as its files are called: ``en-de.residual.1``."""
        return f"{direction}.{self.system}.{self.seed}"

    def target(self, direction: str) -> str:
        """The language that one direction of it translates into."""
        data = self.loaded.config.data
        return data.target if data.languages is None else Direction.parse(direction).target


@dataclass(frozen=True)
class LoadedPlan:
    """A checked plan with all its runs, in the order in which they are trained."""

    plan: Plan
    path: Path
    runs: tuple[RunPlan, ...]
    claims: tuple[Claim, ...]


def load_plan(path: Path, folder: Path, overrides: Sequence[str] = ()) -> LoadedPlan:
    """Read a plan and check every run file it makes, before anything is trained.

    Seeds come one after the other, and models of all directions before those of one, so that a table of all
    systems is there as early as possible.

    Args:
        path: The plan.
        folder: Where everything is written.
        overrides: Changes to the plan: ``seeds=[1]``.

    Raises:
        UsageError: The plan or one of its run files is wrong, or names no test set.
    """
    if path.suffix not in {".yaml", ".yml"}:
        raise UsageError(f"{path}: a plan is a .yaml file", "see examples/results/multi30k.yaml")
    settings = read_settings(Plan, str(path), overrides, locate=locate)
    plan, home = settings.section, settings.document.path.parent
    if plan.text is not None and not plan.text.is_dir():
        raise UsageError(f"{path}: text: no such folder: {plan.text}", "say where the text is: text=FOLDER")
    claims = read_claims(absolute(plan.claims, home)) if plan.claims is not None else ()
    return LoadedPlan(plan, settings.document.path, tuple(_runs(plan, home, folder)), claims)


def _runs(plan: Plan, home: Path, folder: Path) -> Iterator[RunPlan]:
    every = tuple(plan.directions)
    together = (f"data.directions=[{', '.join(every)}]",)
    whole = {name: system for name, system in plan.systems.items() if system.one_model}
    apart = {name: system for name, system in plan.systems.items() if not system.one_model}
    for seed in plan.seeds:
        yield from _part(plan, home, folder, seed, whole, _ALL, every, together)
        for direction, changes in plan.directions.items():
            yield from _part(plan, home, folder, seed, apart, direction, (direction,), changes)


def _part(
    plan: Plan,
    home: Path,
    folder: Path,
    seed: int,
    systems: Mapping[str, SystemPlan],
    part: str,
    directions: tuple[str, ...],
    changes: Sequence[str],
) -> Iterator[RunPlan]:
    """The runs of some systems with one seed, in one direction or in all."""
    for name, system in systems.items():
        place = folder / "runs" / part / name / f"seed-{seed}"
        settings = (*plan.settings, *changes, *system.overrides())
        overrides = (
            f"data.prepared={folder / 'prepared'}",
            *(_with_text(setting, plan.text) for setting in settings),
            f"seed={seed}",
            f"run={place}",
        )
        base = _base(system.base or plan.base, home)
        loaded = _checked(name, base, overrides)
        _check_directions(plan, name, loaded, directions)
        yield RunPlan(directions, name, seed, part, place, base, overrides, loaded)


def _with_text(setting: str, text: Path | None) -> str:
    if _TEXT not in setting:
        return setting
    if text is None:
        raise UsageError(f"{setting}: the plan does not say where the text is", "add text=FOLDER")
    return setting.replace(_TEXT, str(text))


def _checked(system: str, base: str, overrides: Sequence[str]) -> LoadedRunFile:
    try:
        loaded = load_run_file(base, overrides)
    except UsageError as error:
        raise UsageError(f"system {system}: {error.message}", error.hint) from None
    if loaded.config.data.test is None:
        raise UsageError(f"system {system}: {base} names no data.test", "a results page scores a test set")
    return loaded


def _check_directions(plan: Plan, system: str, loaded: LoadedRunFile, directions: tuple[str, ...]) -> None:
    """See that a run file translates in the directions that the plan has for it.

    Raises:
        UsageError: It does not.
    """
    data, name = loaded.config.data, f"system {system}"
    if plan.systems[system].one_model:
        known = [] if data.languages is None else [str(one) for one in data.languages.directions]
        for direction in directions:
            if direction not in known:
                raise UsageError(
                    f"{name}: its model does not translate {direction}",
                    f"its settings leave data.directions at {', '.join(known) or 'null'}",
                )
    elif data.languages is not None:
        raise UsageError(
            f"{name}: has several directions in one model",
            "add one_model: true, or data.directions=null where it is a model for each direction",
        )
    elif plan.joint and f"{data.source}-{data.target}" != directions[0]:
        raise UsageError(
            f"{name}: the model for {directions[0]} translates {data.source}-{data.target}",
            f"give the direction its settings: {directions[0]}: [data.source=..., data.target=...]",
        )


def _base(name: str, home: Path) -> str:
    """A run file is found from the folder of the plan, a recipe by its name."""
    return str(absolute(Path(name), home)) if Path(name).suffix in {".yaml", ".yml"} else name
