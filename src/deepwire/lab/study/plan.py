"""The plan of a study: which systems are trained, on what, how far, and what is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from deepwire.config.counts import Count
from deepwire.config.section import Section
from deepwire.config.settings_reader import absolute, read_settings
from deepwire.data.languages import Direction
from deepwire.data.prepare.prepared import text_digest
from deepwire.errors import UsageError
from deepwire.evaluation.metric import Metric
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.texts import parse_direction, read_test_set, texts_at, texts_of
from deepwire.lab.study.store import RunRecord
from deepwire.lab.subject import ParallelText
from deepwire.runfile import LoadedRunFile, load_run_file, locate

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
    expected: float | None = Field(default=None, description="the difference in BLEU that the paper has")


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
        named = [("baseline", self.baseline)]
        for pair in self.comparisons:
            named += [("comparisons", pair.system), ("comparisons", pair.baseline)]
        for place, name in named:
            if name not in self.systems:
                raise ValueError(f"{place}: {name!r} is no system of this plan")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: a seed is given twice")
        if list(self.budgets) != sorted(set(self.budgets)):
            raise ValueError("budgets: write them in rising order")
        return self

    @model_validator(mode="after")
    def _search_fits(self) -> Self:
        for name, entry in self.systems.items():
            # search=null says that there shall be none; a plan that merely lacks it has forgotten it.
            if entry.alternatives and "search" not in self.model_fields_set:
                raise ValueError(f"systems.{name}: has alternatives, but the plan has no search.max_updates")
            model = self.systems.get(entry.tuned_as or name)
            if model is None or (entry.tuned_as and (model.tuned_as or entry.alternatives is not None)):
                raise ValueError(f"systems.{name}.tuned_as: names no system with trials of its own")
        if self.search is not None and self.search.direction not in (None, *self.directions):
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
        entry, sides = self.systems[system], ("encoder", "decoder")
        both = (f"model.{side}.{setting}" for setting in entry.both for side in sides)
        changes = self.alternatives_of(system)[alternative]
        return (*self.settings, *of_part, *both, *entry.settings, *changes)

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
    tests = {
        name: place if "{text}" in place else str(absolute(Path(place), home))
        for name, place in plan.more_tests.items()
    }
    return plan.model_copy(update={"more_tests": tests})


_TEXT = "{text}"


@dataclass(frozen=True)
class StudyRun:
    """One run up to a budget, or a trial.

    Attributes:
        name: ``de-en.pre-norm.1``; of a trial ``de-en.pre-norm+half``.
        system, part, seed, alternative: What it is a run of.
        budget: Where it ends: a number of updates, or `END`; empty for a trial.
        directions: What it is scored in.
        base, overrides: Run file or recipe, and the settings on top of it.
        settings: Those of the plan, as the plan writes them.
        folder: Its run directory.
        loaded: The checked run file.
    """

    name: str
    system: str
    part: str
    seed: int
    alternative: str
    budget: str
    directions: tuple[str, ...]
    base: str
    overrides: tuple[str, ...]
    settings: tuple[str, ...]
    folder: Path
    loaded: LoadedRunFile

    @property
    def updates(self) -> int | None:
        """The updates of its budget; None where it ends by itself."""
        return None if self.budget in ("", END) else int(self.budget)

    def metric(self, name: str, direction: str) -> Metric:
        """A metric with the tokenizer of the language that a direction translates into."""
        data = self.loaded.config.data
        target = data.target if data.languages is None else Direction.parse(direction).target
        return LanguageMetrics((name,)).of(target)[0]


class Study:
    """A checked plan, with overrides such as ``seeds=[1]``, and the runs that it trains in a folder.

    Raises:
        UsageError: The plan or one of its run files is wrong.
    """

    def __init__(self, path: Path, folder: Path, overrides: Sequence[str] = ()) -> None:
        self.path, self.name, self.folder = path, path.stem, folder / path.stem
        self.plan: Plan = read_plan(path, tuple(overrides))
        if self.plan.text is not None and not self.plan.text.is_dir():
            raise UsageError(f"{path}: text: no such folder: {self.plan.text}", "add text=FOLDER")
        self._load = lru_cache(maxsize=None)(load_run_file)
        self._digests: dict[str, str] = {}
        for system in self.plan.systems:
            for part in self.plan.parts(system):
                for budget in self.plan.stops:
                    self._check(self.run(system, part, self.plan.seeds[0], OWN, budget))
        for system, alternative in self.plan.trials():
            self.trial(system, alternative)

    def run(self, system: str, part: str, seed: int, alternative: str, budget: str) -> StudyRun:
        """A run of a system with an alternative, up to a budget."""
        called = system if alternative == OWN else f"{system}+{alternative}"
        folder = self.folder / "runs" / part / called / f"seed-{seed}"
        settings = self.plan.run_settings(system, part, alternative)
        limit = () if budget == END else (f"training.max_updates={budget}",)
        base, overrides, loaded = self._loaded(system, alternative, (*settings, *limit), seed, folder)
        directions = tuple(self.plan.directions) if part == ALL else (part,)
        return StudyRun(
            f"{part}.{system}.{seed}", system, part, seed, alternative, budget, directions, base, overrides,
            settings, folder, loaded,
        )  # fmt: skip

    def trial(self, system: str, alternative: str) -> StudyRun:
        """A trial of an alternative."""
        search, part = self.plan.search, self.plan.trial_part(system)
        assert search is not None
        whole = self.run(system, part, search.seed, alternative, END)
        config = whole.loaded.config
        updates = config.training.max_updates
        if updates is None or updates <= search.max_updates or config.data.valid is None:
            raise UsageError(
                f"{self.path}: search: system {system} has no data.valid, or no more than "
                f"{search.max_updates} updates",
                "a trial is shorter than the run that it stands for, and counts by its validation loss",
            )
        settings = self.plan.trial_settings(system, alternative)
        if search.shorten_warmup:
            counts = config.training.schedule.shortened(search.max_updates, updates)
            settings += tuple(f"training.schedule.{key}={count}" for key, count in counts.items())
        # Longer trials have another schedule, so they do not go on from shorter ones.
        folder = self.folder / "search" / str(search.max_updates) / part / f"{system}+{alternative}"
        folder /= f"seed-{search.seed}"
        _, overrides, loaded = self._loaded(system, alternative, settings, search.seed, folder)
        name = f"{part}.{system}+{alternative}"
        return replace(
            whole, name=name, budget="", overrides=overrides, settings=settings, folder=folder, loaded=loaded
        )

    def _loaded(
        self, system: str, alternative: str, settings: Sequence[str], seed: int, folder: Path
    ) -> tuple[str, tuple[str, ...], LoadedRunFile]:
        overrides = (
            f"data.prepared={self.folder / 'prepared'}",
            *map(self._with_text, settings),
            f"seed={seed}",
            f"run={folder}",
        )
        base = self.plan.base_of(system)
        if Path(base).suffix in {".yaml", ".yml"}:
            base = str(absolute(Path(base), self.path.absolute().parent))
        try:
            return base, overrides, self._load(base, overrides)
        except UsageError as error:
            lines = (line.removeprefix("command line: ") for line in error.message.splitlines())
            where = f"{self.path}: system {system}, {alternative}"
            raise UsageError("\n".join(f"{where}: {line}" for line in lines), error.hint) from None

    def _check(self, run: StudyRun) -> None:
        """Raises a UsageError where a run could not be scored or compared, before hours of training."""
        config, plan = run.loaded.config, self.plan
        training, data, updates = config.training, config.data, run.updates
        known = [] if data.languages is None else [str(each) for each in data.languages.directions]
        problem = ""
        if data.test is None:
            problem = "names no data.test"
        elif run.part == ALL and not set(run.directions) <= set(known):
            problem = f"its one model translates {', '.join(known) or 'one direction'}, not all of the plan"
        elif run.part != ALL and known:
            problem = "has several directions in one model: add one_model: true, or data.directions=null"
        elif len(plan.budgets) > 1 and training.schedule.follows_length:
            problem = f"schedule {training.schedule.type} ends with the run, so it needs schedule.updates"
        elif plan.average is not None and updates is not None:
            if updates % training.checkpoint_interval:
                problem = f"a budget of {updates} is no multiple of training.checkpoint.every"
            elif training.checkpoint.keep_last <= plan.average:
                # A signal writes a checkpoint, too.
                problem = f"training.checkpoint.keep_last has to be more than average={plan.average}"
        if problem:
            raise UsageError(f"{self.path}: system {run.system}: {problem}")

    def _with_text(self, setting: str) -> str:
        if _TEXT in setting and self.plan.text is None:
            raise UsageError(f"{self.path}: {setting}: where is the text?", "add text=FOLDER")
        return setting.replace(_TEXT, str(self.plan.text))

    def fresh(self, run: StudyRun) -> RunRecord:
        """The record of a run of which nothing is known; a DataError where its text is missing."""
        data = run.loaded.config.data
        key = data.model_dump_json()
        if key not in self._digests:
            self._digests[key] = text_digest(data)
        return RunRecord(
            name=run.name,
            system=run.system,
            seed=run.seed,
            alternative=run.alternative,
            base=self.plan.base_of(run.system),
            settings=run.settings,
            text=self._digests[key],
        )

    def tests(self, run: StudyRun, direction: str) -> dict[str, ParallelText]:
        """The test sets of a direction of a run, by name; a DataError where one is missing or damaged."""
        data = run.loaded.config.data
        if data.languages is None and data.test is not None:
            tests = {direction: ParallelText(*read_test_set(data.test[0], data))}
            languages = parse_direction(f"{data.source}-{data.target}")
        else:
            languages = Direction.parse(direction)
            tests = {direction: ParallelText(*texts_of(data, run.name).read(languages))}
        for name, place in self.plan.more_tests.items():
            texts = texts_at(self._with_text(place)).read(languages)
            tests[f"{direction} {name}"] = ParallelText(*texts)
        return tests
