"""The plan of a results page: which systems are trained, on what, with which seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from deepwire.config.base import Section
from deepwire.config.reader import absolute, read_settings
from deepwire.errors import UsageError
from deepwire.results.claims import Claim, read_claims
from deepwire.runfile import LoadedRunFile, load_run_file, locate

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")]
"""Names become folders: lower-case letters, digits, hyphens and dots."""


class SystemPlan(Section):
    """One system: what it changes in the base."""

    description: str = Field(default="", description="what it is, in a few words")
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


class Plan(Section):
    """What a results page is made of."""

    title: str = Field(default="Results", description="title of the page")
    base: str = Field(description="run file or recipe that all systems start from")
    settings: tuple[str, ...] = Field(default=(), description="settings of all systems")
    directions: dict[Name, tuple[str, ...]] = Field(
        min_length=1, description="translation directions, each with the settings that make it"
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
    claims: Path | None = Field(default=None, description="file of the papers' claims, seen from this file")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.baseline not in self.systems:
            raise ValueError(f"baseline: {self.baseline!r} is no system of this plan")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: a seed is given twice")
        return self


@dataclass(frozen=True)
class RunPlan:
    """One run: a system, a direction and a seed.

    Attributes:
        folder: Its run directory.
        base: Run file or recipe.
        overrides: Settings on top of the base.
        loaded: The checked run file.
    """

    direction: str
    system: str
    seed: int
    folder: Path
    base: str
    overrides: tuple[str, ...]
    loaded: LoadedRunFile

    @property
    def name(self) -> str:
        """As it is shown, and named in files."""
        return f"{self.direction}.{self.system}.{self.seed}"


@dataclass(frozen=True)
class LoadedPlan:
    """A checked plan with all its runs, in the order in which they are trained."""

    plan: Plan
    path: Path
    runs: tuple[RunPlan, ...]
    claims: tuple[Claim, ...]


def load_plan(path: Path, folder: Path, overrides: Sequence[str] = ()) -> LoadedPlan:
    """Read a plan and check every run file it makes, before anything is trained.

    Seeds come one after the other, so that a table of all systems is there as early as possible.

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
    claims = read_claims(absolute(plan.claims, home)) if plan.claims is not None else ()
    return LoadedPlan(plan, settings.document.path, tuple(_runs(plan, home, folder)), claims)


def _runs(plan: Plan, home: Path, folder: Path) -> Iterator[RunPlan]:
    for seed in plan.seeds:
        for direction, changes in plan.directions.items():
            for name, system in plan.systems.items():
                place = folder / "runs" / direction / name / f"seed-{seed}"
                overrides = (
                    f"data.prepared={folder / 'prepared'}",
                    *plan.settings,
                    *changes,
                    *system.overrides(),
                    f"seed={seed}",
                    f"run={place}",
                )
                base = _base(system.base or plan.base, home)
                yield RunPlan(direction, name, seed, place, base, overrides, _checked(name, base, overrides))


def _checked(system: str, base: str, overrides: Sequence[str]) -> LoadedRunFile:
    try:
        loaded = load_run_file(base, overrides)
    except UsageError as error:
        raise UsageError(f"system {system}: {error.message}", error.hint) from None
    data = loaded.config.data
    if data.test is None:
        raise UsageError(f"system {system}: {base} names no data.test", "a results page scores a test set")
    if data.languages is not None:
        raise UsageError(
            f"system {system}: {base} has several directions in one model",
            "a results page has one run for each direction",
        )
    return loaded


def _base(name: str, home: Path) -> str:
    """A run file is found from the folder of the plan, a recipe by its name."""
    return str(absolute(Path(name), home)) if Path(name).suffix in {".yaml", ".yml"} else name
