"""The runs and trials of a study, each with its checked run file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from deepwire.config.settings_reader import absolute
from deepwire.data.languages import Direction
from deepwire.data.prepare.prepared import text_digest
from deepwire.errors import UsageError
from deepwire.evaluation.directed_texts import parse_direction, texts_at, texts_of
from deepwire.evaluation.metric import Metric
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.texts import read_test_set
from deepwire.lab.study.plan import ALL, END, OWN, Plan, read_plan
from deepwire.lab.study.store import RunRecord
from deepwire.lab.subject import ParallelText
from deepwire.runfile import LoadedRunFile, load_run_file

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
    """A checked plan and the runs that it makes.

    Args:
        path: The plan.
        folder: Where runs are trained.
        overrides: Changes to the plan: ``seeds=[1]``.

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
        """Run file or recipe, all that is set in it, and what comes of it."""
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
        """Refuse what would only be found after hours of training.

        Raises:
            UsageError: The run cannot be scored, or not be compared at its budget.
        """
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
        """The record of a run of which nothing is known.

        Raises:
            DataError: Its text is missing.
        """
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
        """The test sets of a direction of a run, by name.

        Raises:
            DataError: One is missing or damaged.
        """
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
