"""The findings of studies: scores, tested differences, learning curves and trials, as tables and figures."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from deepwire.config.counts import counted
from deepwire.errors import DataError, LogFn, UsageError
from deepwire.evaluation.metric import Floats
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.significance import StandardError, holm, resampled_scores
from deepwire.io.atomic import disk_errors
from deepwire.io.output import write_output
from deepwire.lab.finding import (
    BarChart,
    Cell,
    Column,
    Figure,
    Finding,
    LineChart,
    Series,
    Table,
    provenance,
    to_json,
)
from deepwire.lab.report import render, require_matplotlib, save_html, table_markdown
from deepwire.lab.study.plan import END, OWN, ComparisonPlan, Plan
from deepwire.lab.study.runner import taken_alternatives
from deepwire.lab.study.store import RunRecord, ScoredTest, Standing, StudyStore, unpack

SAMPLES = 10_000
_LEVEL = 0.05
_FEWEST_DEGREES = 3
_NOT_LEARNED = 0.25  # share of the best BLEU, below which the spread of seeds says nothing of other systems
_RATE = re.compile(r"(?:peak|scale)[=:] *([0-9][0-9.e-]*)")
_FEWEST_BARS = 3
_MILLION, _HOUR = 10**6, 3600
_SHOWN_FROM = 8  # curves begin at this share of the run: what is before would squeeze the rest

MEASURED = (
    "BLEU is the mean over seeds, and over test sets where there are several; sd is the standard deviation "
    "over seeds; last is the last checkpoint alone, where a mean of several translates. The standard error "
    "of a difference is that of the sentences, by {samples:,} bootstrap resamples, and that of the seeds: "
    "Student's t with the standard deviation between seeds of one system, pooled over the study. p is two- "
    "sided; p (Holm) is corrected for all pairs of this page, each of which counts once. Visible is the "
    "difference that would be found in four of five repetitions: alone (p below 0.05), and among all (p "
    "below 0.05 divided by the number of pairs). A pair is not decidable here where a paper's difference is "
    "smaller than what is visible alone, and none was seen."
)


@dataclass(frozen=True)
class SystemRuns:
    """The runs of a system with the plan's present settings.

    Attributes:
        runs: By seed; where a system has a model for each direction, those with a seed together.
    """

    runs: Mapping[int, tuple[RunRecord, ...]]

    def standings(self, stop: str) -> dict[int, tuple[Standing, ...]]:
        """The standings at a budget, by seed: of all models with it, or none."""
        return {
            seed: tuple(run.standings[stop] for run in runs)
            for seed, runs in self.runs.items()
            if all(stop in run.standings for run in runs)
        }

    def tests(self, stop: str) -> dict[int, dict[str, ScoredTest]]:
        """The scored test sets at a budget, by seed and name."""
        return {
            seed: {name: test for standing in standings for name, test in standing.tests.items()}
            for seed, standings in self.standings(stop).items()
        }

    def scores(self, stop: str) -> list[float]:
        """BLEU for each seed that has reached a budget: the mean over test sets."""
        return [statistics.fmean(test.bleu for test in tests.values()) for tests in self.tests(stop).values()]


@dataclass(frozen=True)
class Difference:
    """How far a system lies above its baseline at a budget (`stop`), in BLEU.

    Attributes:
        pair, stop, value: The two systems, where, and the difference.
        error: Its standard error: that of sentences is known, that of seeds estimated.
        seeds: Of both systems.
    """

    pair: ComparisonPlan
    stop: str
    value: float
    error: StandardError
    seeds: tuple[int, int]

    @property
    def p_value(self) -> float:
        """Two-sided."""
        return self.error.p_value(self.value)

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval of 95 %."""
        half = self.error.critical(_LEVEL)
        return self.value - half, self.value + half

    @property
    def visible(self) -> float:
        """The smallest difference that would be found alone in 80 % of repetitions."""
        return self.error.visible(_LEVEL)

    @property
    def is_open(self) -> bool:
        """Whether a paper has a difference that is too small to be seen here, and none was seen."""
        expected = self.pair.expected
        return expected is not None and abs(expected) < self.visible and self.p_value >= _LEVEL


class StudyResults:
    """The results of a study, as far as it was made with the plan's present settings; no run is read.

    Raises:
        DataError: A result is damaged.
    """

    def __init__(self, plan: Plan, store: StudyStore) -> None:
        self.plan = plan
        self.taken = taken_alternatives(plan, store)
        records = {record.name: record for record in store.all()}
        self.trials = {
            pair: records.get(f"{plan.trial_part(pair[0])}.{pair[0]}+{pair[1]}") for pair in plan.trials()
        }
        kept = {name: record for name, record in records.items() if "+" not in name}
        self.outdated = [name for name, record in kept.items() if not self._is_current(record)]
        self.records = {name: record for name, record in kept.items() if name not in self.outdated}
        self.systems: dict[str, SystemRuns] = {}
        for system in plan.systems:
            names = {seed: [f"{part}.{system}.{seed}" for part in plan.parts(system)] for seed in plan.seeds}
            self.systems[system] = SystemRuns(
                {
                    seed: tuple(self.records[name] for name in of_seed)
                    for seed, of_seed in names.items()
                    if all(name in self.records for name in of_seed)
                }
            )

    def _is_current(self, record: RunRecord) -> bool:
        """Whether a run was made with the plan's settings and, where the trials are done, what they took."""
        plan, system, part = self.plan, record.system, record.name.rpartition(f".{record.system}.")[0]
        return (
            system in plan.systems
            and part in plan.parts(system)
            and record.seed in plan.seeds
            and record.alternative in (self.taken.get(system, record.alternative),)
            and record.alternative in plan.alternatives_of(system)
            and record.base == plan.base_of(system)
            and record.settings == plan.run_settings(system, part, record.alternative)
        )

    def seed_scores(self, stop: str) -> list[list[float]]:
        """BLEU of the seeds of each system that has learned to translate."""
        scores = [of_system for each in self.systems.values() if (of_system := each.scores(stop))]
        best = max((max(each) for each in scores), default=0.0)
        return [each for each in scores if statistics.fmean(each) >= _NOT_LEARNED * best]


def pooled_deviation(scores: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Standard deviation between seeds of one system, pooled over systems, and its degrees of freedom."""
    degrees = sum(len(each) - 1 for each in scores)
    squares = sum(statistics.variance(each) * (len(each) - 1) for each in scores if len(each) > 1)
    return (math.sqrt(squares / degrees) if degrees else 0.0), degrees


def differences(studies: Sequence[StudyResults], samples: int = SAMPLES) -> list[list[Difference]]:
    """The tested differences of each study.

    Raises:
        DataError: Systems of a study were scored on different texts, or statistics are damaged.
    """
    everywhere = [
        scores for study in studies for stop in study.plan.stops for scores in study.seed_scores(stop)
    ]
    found = []
    for study in studies:
        of_study = list[Difference]()
        for stop in study.plan.stops:
            resampled = _resampled(study, stop, samples)
            deviation = pooled_deviation(study.seed_scores(stop))
            if deviation[1] < _FEWEST_DEGREES:
                deviation = pooled_deviation(everywhere)
            for pair in study.plan.pairs:
                if pair.system in resampled and pair.baseline in resampled:
                    of_study.append(_difference(study, pair, stop, resampled, deviation))
        found.append(of_study)
    return found


def _difference(
    study: StudyResults,
    pair: ComparisonPlan,
    stop: str,
    resampled: Mapping[str, Floats],
    deviation: tuple[float, int],
) -> Difference:
    own, others = (study.systems[name].scores(stop) for name in (pair.system, pair.baseline))
    value = statistics.fmean(own) - statistics.fmean(others)
    drawn = resampled[pair.system].mean(axis=0) - resampled[pair.baseline].mean(axis=0)
    sd, degrees = deviation
    share = 1 / len(own) + 1 / len(others)
    # What each run has for itself by the choice of sentences is in the deviation between seeds, too.
    own_degrees = sum(len(runs) - 1 for runs in resampled.values())
    squares = sum(float(np.var(runs - runs.mean(axis=0), axis=1).sum()) for runs in resampled.values())
    twice = min(sd**2, squares / own_degrees if own_degrees else 0.0)
    error = StandardError(
        known=math.sqrt(max(0.0, float(np.var(drawn)) - twice * share)),
        # To resample two or three runs would say too little of other seeds, and one nothing.
        estimated=sd * math.sqrt(share),
        degrees=degrees,
    )
    return Difference(pair, stop, value, error, (len(own), len(others)))


def _resampled(study: StudyResults, stop: str, samples: int) -> dict[str, Floats]:
    """BLEU of the runs of each system on the same resamples of the sentences, ``[seeds, samples]``."""
    metric = LanguageMetrics(("bleu",)).of("en")[0]  # made of the same sums, whatever the tokenizer was
    tests = {name: each.tests(stop) for name, each in study.systems.items() if each.tests(stop)}
    runs = [(name, seed) for name, by_seed in tests.items() for seed in by_seed]
    if not runs:
        return {}
    names = list(tests[runs[0][0]][runs[0][1]])
    # A text in several directions is one choice of sentences: their differences are not independent.
    texts = list(dict.fromkeys(test.partition(" ")[2] for test in names))
    total = np.zeros((len(runs), samples))
    for test in names:
        scored = [tests[name][seed].get(test) for name, seed in runs]
        there = [each for each in scored if each is not None]
        if len(there) < len(runs) or len({each.text for each in there}) > 1:
            raise DataError(
                f"{study.plan.title}: systems were scored on different texts ({test})",
                "measure all of them on one text: move the results of the others away",
            )
        rows = tuple(unpack(each.statistics) for each in there)
        seed = texts.index(test.partition(" ")[2])
        total += resampled_scores(metric, rows, samples=samples, seed=seed)
    of_run = dict(zip(runs, total / len(names), strict=True))
    return {name: np.stack([of_run[name, seed] for seed in by_seed]) for name, by_seed in tests.items()}


def findings(
    plans: Sequence[tuple[Plan, StudyStore]], samples: int = SAMPLES
) -> tuple[list[Finding], list[StudyResults]]:
    """The findings of some studies on one page.

    Raises:
        DataError: A result is damaged, or systems of a study were scored on different texts.
    """
    studies = [StudyResults(plan, store) for plan, store in plans]
    tested = differences(studies, samples)
    # Two claims may rest on one pair: it is corrected for once.
    keys = [[(n, d.pair.system, d.pair.baseline, d.stop) for d in found] for n, found in enumerate(tested)]
    p_values = dict(zip(chain(*keys), (each.p_value for each in chain(*tested)), strict=True))
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    made = []
    for study, of_study, of_keys in zip(studies, tested, keys, strict=True):
        rows = [
            (each.is_open, _difference_row(each, corrected[key], _LEVEL / len(corrected)))
            for each, key in zip(of_study, of_keys, strict=True)
        ]
        tables = [_scores(study), _by_test(study)]
        for title, wanted in (("Differences", False), ("Not decidable here", True)):
            chosen = [row for is_open, row in rows if is_open is wanted]
            # Without the columns of questions and papers where no comparison has any.
            used = [name for name in (chosen[0] if chosen else ()) if any(row[name] != "" for row in chosen)]
            cells = [[row[name] for name in used] for row in chosen]
            tables.append(Table(title=title, columns=used, rows=cells))
        tables += [_rates(study), _trials(study), _conditions(study)]
        made.append(
            Finding(
                analysis="study",
                title=study.plan.title,
                measured=study.plan.about or "Systems trained by one plan.",
                tables=[table for table in tables if table.rows],
                figures=[*_bars(of_study), *_curves(study)],
                provenance=provenance(),
            )
        )
    return made, studies


def _at(stop: str) -> str:
    return stop if stop == END else f"{int(stop):,}"


def _scores(study: StudyResults) -> Table:
    rows, baseline = list[tuple[Cell, ...]](), "" if study.plan.comparisons else study.plan.baseline
    for name, system in study.systems.items():
        for stop in study.plan.stops:
            standings = [each for of_seed in system.standings(stop).values() for each in of_seed]
            if not standings:
                continue
            bleu, tests = system.scores(stop), [test for each in standings for test in each.tests.values()]
            last = [each.last for each in standings if each.last is not None]
            losses = [each.best_nll for each in standings if each.best_nll is not None]
            seconds = sum(test.seconds for test in tests)
            cells: tuple[Cell, ...] = (
                f"{name} (baseline)" if name == baseline else name,
                study.taken.get(name, ""),
                max(sum(run.parameters for run in runs) for runs in system.runs.values()) / _MILLION,
                _at(stop),
                len(bleu),
                statistics.fmean(bleu),
                statistics.stdev(bleu) if len(bleu) > 1 else None,
                statistics.fmean(last) if last else None,
                statistics.fmean(test.chrf for test in tests),
                statistics.fmean(losses) if losses else None,
                statistics.fmean(each.target_tokens for each in standings) / _MILLION,
                statistics.fmean(each.seconds for each in standings) / _HOUR,
                sum(test.sentences for test in tests) / seconds if seconds else None,
            )
            rows.append(cells)
    columns = ["system", "setting tried", "parameters [M] .2", "at update", "seeds", "BLEU .2", "sd .2"]
    columns += ["last .2", "chrF .2", "validation loss [nats/token] .3", "target tokens [M] .1"]
    columns += ["training [h] .2", "decoding [sent/s] .1"]
    return Table(title="Scores", columns=columns, rows=rows)


def _by_test(study: StudyResults) -> Table:
    """BLEU of each test set at the last budget; no row where there is one test set."""
    stop = study.plan.stops[-1]
    of_systems = {name: list(each.tests(stop).values()) for name, each in study.systems.items()}
    names = list(dict.fromkeys(test for seeds in of_systems.values() for tests in seeds for test in tests))
    rows = [
        (name, *(statistics.fmean(tests[test].bleu for tests in seeds) for test in names))
        for name, seeds in of_systems.items()
        if seeds and len(names) > 1
    ]
    columns = ["system", *(Column(name=test, digits=2) for test in names)]
    return Table(title="BLEU by test set", columns=columns, rows=rows)


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"


def _difference_row(each: Difference, corrected: float, strict: float) -> dict[str, Cell]:
    return {
        "question": each.pair.question,
        "system": each.pair.system,
        "against": each.pair.baseline,
        "at update": _at(each.stop),
        "difference [BLEU]": _signed(each.value),
        "95 %": " to ".join(map(_signed, each.bounds)),
        "p": each.p_value,
        "p (Holm) .3": corrected,
        "visible alone [BLEU] .2": each.visible,
        "among all [BLEU] .2": each.error.visible(strict),
        "seeds": f"{each.seeds[0]}, {each.seeds[1]}",
        "a paper's [BLEU]": "" if each.pair.expected is None else _signed(each.pair.expected),
        "what a paper has": each.pair.paper,
    }


def _rates(study: StudyResults) -> Table:
    """The learning rates with which systems that are the same otherwise were trained to the end."""
    groups: dict[tuple[str, ...], dict[float, tuple[str, float]]] = {}
    for name, system in study.systems.items():
        if stop := next((stop for stop in reversed(study.plan.stops) if system.scores(stop)), ""):
            settings = next(iter(system.runs.values()))[0].settings
            of_rate = [each for each in settings if each.startswith("training.schedule")]
            same = stop, *(each for each in settings if each not in of_rate)
            rate = float(["1", *_RATE.findall(" ".join(of_rate))][-1])
            groups.setdefault(same, {})[rate] = name, statistics.fmean(system.scores(stop))
    rows = list[tuple[Cell, ...]]()
    for rates in groups.values():
        best = max(rates, key=lambda rate: rates[rate][1])
        tried = ", ".join(f"{rate:g}: {rates[rate][1]:.2f}" for rate in sorted(rates))
        if len(rates) > 1:
            inside = "yes" if min(rates) < best < max(rates) else "no"
            rows.append((next(iter(rates.values()))[0], tried, f"{best:g}", inside))
    if alone := [name for rates in groups.values() for name, _ in rates.values() if len(rates) == 1]:
        rows.append((", ".join(alone), "one rate", "", "no"))
    columns = ["system", "rate: BLEU", "best", "the best lies between others"]
    return Table(title="Rates tried to the end", columns=columns, rows=rows)


def _trials(study: StudyResults) -> Table:
    rows = []
    for (system, alternative), record in study.trials.items():
        outcome = "not made" if record is None else record.failed.get("", "")
        if study.taken.get(system) == alternative:
            outcome = "taken"
        settings = " ".join(study.plan.alternatives_of(system)[alternative]) or OWN
        rows.append((system, settings, None if record is None else record.loss, outcome))
    columns = ["system", "settings", "validation loss [nats/token] .3", "outcome"]
    return Table(title="Trials", columns=columns, rows=rows)


def _conditions(study: StudyResults) -> Table:
    """With what runs were trained and measured, how far seeds lie apart, and what is not there."""
    runs, stops = study.records.values(), study.plan.stops
    standings = [standing for run in runs for standing in run.standings.values()]
    dates = sorted(run.date[:10] for run in runs if run.date)
    facts = [("trained with", _listed(run.trained_with)) for run in runs]
    facts += [("decoding", _listed(standing.settings)) for standing in standings]
    facts += [("BLEU", test.signature) for standing in standings for test in standing.tests.values()]
    facts += [("measured", " to ".join(dict.fromkeys((dates[0], dates[-1]))))] if dates else []
    for stop in stops:
        sd, degrees = pooled_deviation(study.seed_scores(stop))
        if degrees:
            told = counted(degrees, "degree of freedom", "degrees of freedom")
            facts.append((f"sd between seeds, {_at(stop)}", f"{sd:.2f} BLEU, {told}"))
    facts += [("failed", f"{run.name}: {why}") for run in runs for why in run.failed.values()]
    facts += [("made with other settings", ", ".join(study.outdated))] if study.outdated else []
    for stop in stops:
        left = [name for name, each in study.systems.items() if not each.standings(stop)]
        facts += [(f"not trained, {_at(stop)}", ", ".join(left))] if left else []
    return Table(title="Conditions", columns=["what", "how"], rows=list(dict.fromkeys(facts)))


def _listed(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _bars(found: Sequence[Difference]) -> Iterator[Figure]:
    """Differences beside one baseline, by question, where three systems or more have it."""
    groups: dict[tuple[str, str], dict[str, list[Difference]]] = {}
    for each in found:
        stops = groups.setdefault((each.pair.question, each.pair.baseline), {})
        stops.setdefault(each.stop, []).append(each)
    number = 0
    for (question, baseline), stops in groups.items():
        stop = max(stops, key=lambda name: len(stops[name]))  # the first of those with most systems
        chosen = sorted(stops[stop], key=lambda each: -each.value)
        if len(chosen) < _FEWEST_BARS:
            continue
        number += 1
        where = "" if stop == END else f" after {_at(stop)} updates"
        bars = Series(
            name="difference",
            y=[each.value for each in chosen],
            low=[each.bounds[0] for each in chosen],
            high=[each.bounds[1] for each in chosen],
        )
        yield BarChart(
            name=f"differences-{number}",
            title=f"{question} BLEU beside {baseline}{where}, with 95 % intervals".strip(),
            x="system",
            y="difference [BLEU]",
            categories=[each.pair.system for each in chosen],
            series=[bars],
        )


def _curves(study: StudyResults) -> Iterator[Figure]:
    """Validation loss by updates of the systems of each question, or of all: means over seeds, and ranges."""
    groups: dict[str, dict[str, None]] = {}
    for pair in study.plan.comparisons:
        groups.setdefault(pair.question, {}).update({pair.system: None, pair.baseline: None})
    groups = groups or {"": dict.fromkeys(study.systems)}
    for number, (question, systems) in enumerate(groups.items(), 1):
        lines = []
        for name in systems:
            of_seeds = study.systems[name].runs.values()
            curves = [run.curve for runs in of_seeds for run in runs if run.curve.updates]
            if not curves:
                continue
            losses = [
                {update: nll for update, nll in zip(curve.updates, curve.nll, strict=True) if nll is not None}
                for curve in curves
            ]
            begin = max(curve.updates[-1] for curve in curves) / _SHOWN_FROM
            # Beyond the update at which the first of several seeds stood still, a mean would jump.
            shared = sorted(set.intersection(*(set(each) for each in losses)))
            shared = [update for update in shared if update >= begin]
            at = [[each[update] for each in losses] for update in shared]
            ranges = {"low": map(min, at), "high": map(max, at)} if len(curves) > 1 else {}
            lines.append(Series(name=name, x=shared, y=map(statistics.fmean, at), **ranges))
        if len(lines) > 1:
            yield LineChart(
                name=f"curves-{number}",
                title=f"{question or study.plan.title}: learning curves",
                x="updates",
                x_log=True,
                y="validation loss [nats/token]",
                series=lines,
            )


def write_pages(
    plans: Sequence[tuple[Plan, StudyStore]], folder: Path, markdown: Path | None, tell: LogFn
) -> tuple[Sequence[Finding], Path]:
    """Write ``study.md``, ``study.json`` and ``study.html`` of all that is kept into a folder.

    Args:
        markdown: A further place of the Markdown; it stays as it is while there is no result.
        tell: Receives a line where figures are left out, because matplotlib is not installed.

    Returns:
        The findings, and the page to look at.

    Raises:
        DataError: A result is damaged, or systems of a study were scored on different texts.
        UsageError: There is no result at all, and `markdown` would be replaced.
        ResourceError: A file cannot be written.
    """
    made, studies = findings(plans)
    title = plans[0][0].title if len(plans) == 1 else "Results"
    about = MEASURED.format(samples=SAMPLES)
    draws = True
    try:
        require_matplotlib()
    except UsageError as error:
        draws = False
        tell(f"no figures: {error}")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    pages = [folder / "study.md"]
    if markdown is not None:
        if not any(study.records for study in studies):
            raise UsageError(f"there is no result yet, so {markdown} stays as it is", "see --results")
        pages.append(markdown)
    for page in pages:
        write_output(page, _markdown(made, title, about, page, draws=draws))
    write_output(folder / "study.json", to_json(made, indent=1) + "\n")
    if draws:
        save_html(made, folder / "study.html", title, about)
    return made, pages[-1]


def _markdown(made: Sequence[Finding], title: str, about: str, page: Path, *, draws: bool) -> str:
    blocks = [f"# {title}", about]
    for number, finding in enumerate(made, 1):
        blocks += [f"## {finding.title}" if len(made) > 1 else "", finding.measured]
        for table in finding.tables:
            blocks += [f"**{table.title}**", table_markdown(table)]
        for figure in finding.figures if draws else ():
            path = page.with_suffix("") / f"{number}-{figure.name}.svg"
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(render(figure, "svg"))
            blocks.append(f"![{figure.title}]({path.parent.name}/{path.name})")
    return "\n\n".join(filter(None, blocks)) + "\n"
