"""The runs that a plan makes, each with its checked run file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deepwire.config.settings_reader import absolute, read_settings
from deepwire.config.yaml_tree import MappingNode
from deepwire.data.languages import Direction
from deepwire.errors import UsageError
from deepwire.evaluation.multilingual.directed_texts import texts_at, texts_of
from deepwire.evaluation.multilingual.direction_names import parse_direction
from deepwire.evaluation.texts import Text
from deepwire.lab.experiments.results.paper_claims import Claim, read_claims
from deepwire.lab.experiments.results.plan_locations import in_plan
from deepwire.lab.experiments.results.result_store import decisive
from deepwire.lab.experiments.results.results_plan import ALL, OWN, Plan, SearchPlan
from deepwire.runfile import LoadedRunFile, load_run_file, locate

_TEXT = "{text}"
_TAKEN_OUT = re.compile(r"directions\.([^=.]+)=\s*(?:null|~)?\s*")


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
        alternative: Which of the system's alternatives it has.
        settings: What the plan sets in it, as the plan writes it: no folder of this machine.
        goes_on: Whether it may go on from a smaller ``training.max_updates``.
    """

    directions: tuple[str, ...]
    system: str
    seed: int
    part: str
    folder: Path
    base: str
    overrides: tuple[str, ...]
    loaded: LoadedRunFile
    alternative: str = OWN
    settings: tuple[str, ...] = ()
    goes_on: bool = False

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
class Trial:
    """A short run of the search: a system with one of its alternatives.

    Attributes:
        names: Of the alternative; several where they come to the same run.
        settings: What it sets.
        run: The run.
    """

    names: tuple[str, ...]
    settings: tuple[str, ...]
    run: RunPlan

    @property
    def name(self) -> str:
        """As it is kept: ``de-en.pre-norm+own``."""
        return f"{self.run.part}.{self.run.system}+{self.names[0]}"


@dataclass(frozen=True)
class LoadedPlan:
    """A checked plan.

    Attributes:
        plan: What the file says.
        path: The file.
        folder: Where everything is written.
        runs: In the order in which they are trained.
        trials: Of the search, before them.
        claims: The papers'.
        more: Source and reference of the test sets besides ``data.test``, by direction and name.
        tree: The plan as it was written.
    """

    plan: Plan
    path: Path
    folder: Path
    runs: tuple[RunPlan, ...]
    trials: tuple[Trial, ...]
    claims: tuple[Claim, ...]
    more: Mapping[str, Mapping[str, tuple[Text, Text]]]
    tree: MappingNode

    def decided(self, taken: Mapping[str, str]) -> LoadedPlan:
        """The plan with the alternatives that a search has taken, by system, in place of own settings."""
        if not taken:
            return self
        made = _RunPlanner(self.plan, self.path.parent, self.folder, self.tree).runs(taken)
        return replace(self, runs=tuple(made))


def load_plan(path: Path, folder: Path, overrides: Sequence[str] = ()) -> LoadedPlan:
    """Read a plan and check every run file it makes, before anything is trained.

    Args:
        path: The plan.
        folder: Where everything is written.
        overrides: Changes to the plan: ``seeds=[1]``.

    Raises:
        UsageError: The plan or one of its run files is wrong, or names no test set.
        DataError: One of the plan's own test sets is missing or damaged.
    """
    if path.suffix not in {".yaml", ".yml"}:
        raise UsageError(f"{path}: a plan is a .yaml file", "see examples/results/multi30k.yaml")
    settings = read_settings(Plan, str(path), overrides, locate=locate)
    plan, home = settings.section, settings.document.path.parent
    _check_taken_out(path, overrides)
    if plan.text is not None and not plan.text.is_dir():
        raise UsageError(f"{path}: text: no such folder: {plan.text}", "say where the text is: text=FOLDER")
    claims = read_claims(absolute(plan.claims, home)) if plan.claims is not None else ()
    make = _RunPlanner(plan, home, folder, settings.tree)
    runs = tuple(make.runs({}))
    more = {name: dict(make.more_tests(name, runs)) for name in plan.directions}
    trials = tuple(make.trials())
    return LoadedPlan(plan, settings.document.path, folder, runs, trials, claims, more, settings.tree)


@dataclass(frozen=True)
class _DirectionsOfModel:
    """The directions that one model has.

    Attributes:
        name: The direction, or ``all``.
        directions: All of them.
    """

    name: str
    directions: tuple[str, ...]


@dataclass(frozen=True)
class _RunPlanner:
    """Makes the runs of a plan.

    Attributes:
        plan: The plan.
        home: The folder that its paths start from.
        folder: Where everything is written.
        tree: The plan as it was written.
    """

    plan: Plan
    home: Path
    folder: Path
    tree: MappingNode

    def runs(self, taken: Mapping[str, str]) -> Iterator[RunPlan]:
        """Seeds come one after the other, and models of all directions before those of one, so that a table
        of all systems is there as early as possible.

        Args:
            taken: The alternatives that the search has taken, by system; others have their own settings.
        """
        for seed in self.plan.seeds:
            for part in (self._together(), *map(self._alone, self.plan.directions)):
                for system, entry in self.plan.systems.items():
                    if entry.one_model == (part.name == ALL):
                        name = taken.get(system, OWN)
                        called = system if name == OWN else f"{system}+{name}"
                        place = self.folder / "runs" / part.name / called
                        yield self._run(system, name, part, seed, place / f"seed-{seed}")

    def trials(self) -> Iterator[Trial]:
        """The trials of the search, system by system; none of systems that have nothing to choose from."""
        if self.plan.search is None:
            return
        for system, entry in self.plan.systems.items():
            if entry.tuned_as is not None:
                continue
            trials: dict[str, Trial] = {}
            for name, settings in self.plan.alternatives_of(system).items():
                new = Trial((name,), settings, self._trial(system, name, self.plan.search))
                key = json.dumps(decisive(new.run.loaded.resolved))
                old = trials.get(key)
                trials[key] = new if old is None else replace(old, names=(*old.names, name))
            if len(trials) > 1:
                yield from trials.values()

    def more_tests(self, direction: str, runs: Sequence[RunPlan]) -> Iterator[tuple[str, tuple[Text, Text]]]:
        """The test sets of a direction besides ``data.test``, each with its name, source and reference."""
        if not self.plan.more_tests:
            return
        data = next(run.loaded.config.data for run in runs if direction in run.directions)
        languages = parse_direction(f"{data.source}-{data.target}")
        seen = {_content(texts_of(data, "test", direction).read(languages)): "data.test"}
        for name, place in self.plan.more_tests.items():
            # The folder of the text is a setting, and like all settings seen from here.
            base = Path.cwd() if _TEXT in place else self.home
            path = absolute(Path(_with_text(place, self.plan.text)), base)
            texts = texts_at(str(path), "test").read(languages)
            first = seen.setdefault(_content(texts), f"more_tests.{name}")
            if first != f"more_tests.{name}":
                raise UsageError(
                    f"more_tests.{name}: the same text as {first}", "counted twice it would prove too much"
                )
            yield name, texts

    def _trial(self, system: str, name: str, search: SearchPlan) -> RunPlan:
        direction = search.direction or next(iter(self.plan.directions))
        part = self._together() if self.plan.systems[system].one_model else self._alone(direction)
        # Longer trials have another schedule, so they do not go on from shorter ones.
        top = self.folder / "search" / str(search.max_updates)
        place = top / part.name / f"{system}+{name}" / f"seed-{search.seed}"
        whole = self._run(system, name, part, search.seed, place)
        return self._run(system, name, part, search.seed, place, _shorter(system, whole, search))

    def _together(self) -> _DirectionsOfModel:
        every = tuple(self.plan.directions)
        return _DirectionsOfModel(ALL, every)

    def _alone(self, direction: str) -> _DirectionsOfModel:
        return _DirectionsOfModel(direction, (direction,))

    def _run(
        self,
        system: str,
        alternative: str,
        part: _DirectionsOfModel,
        seed: int,
        place: Path,
        more: Iterable[str] = (),
    ) -> RunPlan:
        """One run; `more` settings come after all others."""
        plan = self.plan
        settings = plan.run_settings(system, part.name, alternative)
        written = (*settings, *more)
        overrides = (
            f"data.prepared={self.folder / 'prepared'}",
            *(_with_text(setting, plan.text) for setting in written),
            f"seed={seed}",
            f"run={place}",
        )
        base = _base(plan.systems[system].base or plan.base, self.home)
        called = f"system {system}" if alternative == OWN else f"system {system}, alternative {alternative}"
        try:
            loaded = load_run_file(base, overrides)
        except UsageError as error:
            raise in_plan(error, called, written, self.tree, system) from None
        if loaded.config.data.test is None:
            raise UsageError(f"{called}: {base} names no data.test", "a results page scores a test set")
        _check_directions(plan, system, loaded, part.directions)
        return RunPlan(
            part.directions, system, seed, part.name, place, base, overrides, loaded, alternative, settings
        )


def _content(texts: tuple[Text, Text]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(lines) for text in texts for lines in text.answers)


def _shorter(system: str, whole: RunPlan, search: SearchPlan) -> Iterator[str]:
    """Settings that make a trial of a whole run.

    Raises:
        UsageError: The run is not longer than a trial, or has no validation set.
    """
    config, trial = whole.loaded.config, search.max_updates
    updates, schedule = config.training.max_updates, config.training.schedule
    if updates is None or updates <= trial:
        raise UsageError(
            f"search.max_updates: {trial} is not below training.max_updates={updates} of system {system}",
            "a trial is shorter than the run that it stands for",
        )
    if config.data.valid is None:
        raise UsageError(
            f"search: system {system} has no data.valid", "trials are compared by their validation loss"
        )
    yield f"training.max_updates={trial}"
    yield from search.settings
    if search.shorten_warmup:
        for name, count in schedule.shortened(trial, updates).items():
            yield f"training.schedule.{name}={count}"


def _check_taken_out(path: Path, overrides: Sequence[str]) -> None:
    """See that `directions.en-fr=null` takes something out of the plan.

    Raises:
        UsageError: The plan has no such direction.
    """
    names = [match[1] for match in map(_TAKEN_OUT.fullmatch, overrides) if match]
    if not names:
        return
    others = [text for text in overrides if not _TAKEN_OUT.fullmatch(text)]
    known = read_settings(Plan, str(path), others, locate=locate).section.directions
    for name in names:
        if name not in known:
            raise UsageError(
                f"directions.{name}=null: the plan has no such direction", f"it has {', '.join(known)}"
            )


def _with_text(setting: str, text: Path | None) -> str:
    if _TEXT not in setting:
        return setting
    if text is None:
        raise UsageError(f"{setting}: the plan does not say where the text is", "add text=FOLDER")
    return setting.replace(_TEXT, str(text))


def _check_directions(plan: Plan, system: str, loaded: LoadedRunFile, directions: tuple[str, ...]) -> None:
    """See that a run file translates in the directions that the plan has for it.

    Raises:
        UsageError: It does not.
    """
    data, name = loaded.config.data, f"system {system}"
    if plan.systems[system].one_model:
        known = [] if data.languages is None else [str(direction) for direction in data.languages.directions]
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
