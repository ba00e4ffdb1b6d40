"""The numbers behind the answers, as tables and curves."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence

from deepwire.errors import DataError
from deepwire.evaluation.significance import Interval
from deepwire.io.regular_files import read_json
from deepwire.lab.experiments.questions.answers import AnsweredQuestion
from deepwire.lab.experiments.questions.question_plan import GOALS, Goal
from deepwire.lab.experiments.questions.question_results import QuestionResult, TriedSettings
from deepwire.lab.experiments.questions.question_verdicts import (
    SystemResults,
    difference_between,
    has_learned,
)
from deepwire.lab.experiments.questions.question_words import parameters
from deepwire.lab.report.finding import Finding, provenance
from deepwire.lab.report.tables_and_figures import (
    Axis,
    BarChart,
    Cell,
    Column,
    LineChart,
    Series,
    Table,
)

_MILLION, _HOUR = 10**6, 3600
_SHOWN_FROM = 6
_DAY = len("2026-01-31")
_FEWEST_BARS = 3
_LENGTHS = (5, 10, 20, 30, 50, 100, 200, 300)


def question_finding(question: AnsweredQuestion) -> Finding:
    """The systems of a question with all that was measured, and how."""
    plan = question.plan
    tables = [_systems(question), _standings(question)]
    if tuned_trials := _trials(question):
        tables.append(
            Table(
                title="Trials",
                columns=(
                    Column(name="system"),
                    Column(name="settings"),
                    Column(name="validation loss", unit="nats/token", digits=3),
                    Column(name="outcome"),
                ),
                rows=tuple(
                    (
                        trial.system,
                        " ".join(trial.settings) or "own",
                        trial.loss,
                        "taken" if trial.taken else f"failed: {trial.failed}" if trial.failed else "",
                    )
                    for trial in tuned_trials
                ),
            )
        )
    return Finding(
        analysis=f"question-{question.name}",
        title=f"{question.name}: all systems",  # short, as the contents have that of the question already
        measured=" ".join(filter(None, [plan.about, _how(question)])),
        tables=tuple(tables),
        notes=tuple(_notes(question)),
        provenance=provenance(),
    )


def learning_curves(question: AnsweredQuestion) -> LineChart | None:
    """Validation loss by updates, the mean over seeds with the lowest and highest; None of a system alone."""
    begin = question.part.equal_updates // _SHOWN_FROM  # what is before would squeeze the rest to the foot
    lines = [line for system in question.systems.values() if (line := _curve(system, begin)) is not None]
    if len(lines) < 2:
        return None
    return LineChart(
        name=question.name.lower(),
        title=f"{question.name}: learning curves",
        x=Axis(label="updates", log=True),
        y=Axis(label="validation loss", unit="nats/token"),
        series=tuple(lines),
    )


def differences(question: AnsweredQuestion) -> BarChart | None:
    """BLEU of each system beside that which the first claim compares with; None of fewer than three systems.

    Systems that have not learned to translate are left out: beside their bars the others would vanish.
    """
    reference = question.plan.claims[0].than
    goals: Mapping[Goal, str] = {
        "equal": f"after {question.part.equal_updates:,} updates",
        "plateau": "as far as they were trained",
    }
    above = {goal: _above(question, reference, goal) for goal in goals}
    names = sorted(above["equal"], key=lambda name: -above["equal"][name][0])
    if len(names) < _FEWEST_BARS:
        return None
    series = [
        _bars(label, [above[goal].get(name) for name in names])
        for goal, label in goals.items()
        if len(above[goal]) >= _FEWEST_BARS
    ]
    when = f" {series[0].name}" if len(series) == 1 else ""
    return BarChart(
        name=f"{question.name.lower()}-differences",
        title=f"{question.name}: BLEU beside {reference}{when}, with 95 % intervals",
        x=Axis(label="system"),
        y=Axis(label="difference", unit="BLEU"),
        categories=tuple(names),
        series=tuple(series),
    )


def _bars(name: str, differences: Sequence[tuple[float, Interval] | None]) -> Series:
    """Bars with their intervals; a gap where there is None."""
    return Series(
        name=name,
        y=tuple(None if each is None else each[0] for each in differences),
        low=tuple(None if each is None else each[1].low for each in differences),
        high=tuple(None if each is None else each[1].high for each in differences),
    )


def _above(question: AnsweredQuestion, reference: str, goal: Goal) -> dict[str, tuple[float, Interval]]:
    """By system, how far it lies above the reference, and 95 % of it."""
    systems = question.systems
    above = {}
    for name, system in systems.items():
        if name != reference and has_learned(system, systems, goal):
            compared = difference_between(
                system, systems[reference], goal, question.samples, question.deviations[goal]
            )
            if compared is not None:
                above[name] = compared[:2]
    return above


def speeds_by_length(question: AnsweredQuestion) -> LineChart | None:
    """Sentences a second by length, of `benchmarks/decoding_length.py`; None where nobody measured them.

    Raises:
        DataError: The file is not of that program.
    """
    path = question.plan.speeds
    if path is None or not path.exists():
        return None
    record = read_json(path)
    match record:
        case {"seconds_of_steps": dict(steps), "options": {"batch": int(batch)}}:
            pass
        case _:
            raise DataError(f"{path}: was not written by benchmarks/decoding_length.py")
    series = []
    for name, seconds in steps.items():
        lengths = [length for length in _LENGTHS if length <= len(seconds) + 1]
        speeds = tuple(batch / sum(seconds[:length]) for length in lengths)
        series.append(Series(name=name, x=tuple(map(float, lengths)), y=speeds))
    return LineChart(
        name=f"{question.name.lower()}-speed",
        title=f"{question.name}: decoding speed by length",
        x=Axis(label="subwords of the translation", log=True),
        y=Axis(label="speed", unit="sentences/s", log=True),
        series=tuple(series),
    )


def _trials(question: AnsweredQuestion) -> list[TriedSettings]:
    """What the systems of a question, or the relatives whose choice they took, have tried."""
    systems = question.part.plan.systems
    tuned = {systems[name].tuned_as or name for name in question.plan.systems}
    return [trial for trial in question.part.trials if trial.system in tuned and (trial.loss or trial.failed)]


def _how(question: AnsweredQuestion) -> str:
    still = "and where each stands still (early stopping on the validation loss) or has reached its limit"
    return (
        f"{_batches(question)} They are compared after {question.part.equal_updates:,} updates, "
        f"{still if question.part.plateau else 'where all end'}. "
        "The mean of the last checkpoints translates the test set. BLEU: mean over seeds. "
        f"{_how_seeds_count(question)}"
        f"{_how_tuned(question)}"
    ).rstrip()


def _batches(question: AnsweredQuestion) -> str:
    """Whether all systems learned from the same batches, as their target tokens tell."""
    seen = {
        name: {seed: sum(each.target_tokens for each in of_seed) for seed, of_seed in standings.items()}
        for name, system in question.systems.items()
        if (standings := system.standings("equal"))
    }
    usual = {
        seed: statistics.mode(tokens[seed] for tokens in seen.values() if seed in tokens)
        for seed in sorted({seed for tokens in seen.values() for seed in tokens})
    }
    others = [
        f"{name} with seed {seed} had {abs(tokens[seed] / usual[seed] - 1):.1%} "
        f"{'more' if tokens[seed] > usual[seed] else 'fewer'} target tokens"
        for name, tokens in seen.items()
        for seed in tokens
        if tokens[seed] != usual[seed]
    ]
    if not others:
        return "All systems learn from the same text, those with one seed with the same batches."
    return f"All systems learn from the same text, but not all with the same batches: {'; '.join(others)}."


def _how_seeds_count(question: AnsweredQuestion) -> str:
    """What the tests take for the chance of seeds."""
    goals: tuple[Goal, ...] = GOALS if question.part.plateau else ("equal",)
    places = {"equal": f"after {question.part.equal_updates:,} updates", "plateau": "at the end"}
    told = {
        goal: f"{deviation.sd:.2f} BLEU ({deviation.degrees} degrees of freedom)"
        for goal in goals
        if (deviation := question.deviations[goal]) is not None
    }
    if not told:
        return "No system has several seeds, so the tests count the sentences alone. "
    single = len(set(told.values())) == 1
    shown = told["equal"] if single else ", ".join(f"{told[goal]} {places[goal]}" for goal in told)
    return f"The tests count a standard deviation between seeds of one system of {shown}. "


def _how_tuned(question: AnsweredQuestion) -> str:
    """How long a trial is, and which systems had none of their own; nothing where none was made."""
    plan = question.part.plan
    if plan.search is None or not (tried := {trial.system for trial in _trials(question)}):
        return ""
    entries = {name: plan.systems[name] for name, system in question.systems.items() if system.runs}
    others = [f"{name} that of {entry.tuned_as}" for name, entry in entries.items() if entry.tuned_as]
    sentences = [
        f"The table of trials shows what was tried, {plan.search.max_updates:,} updates each. The "
        "lowest validation loss decided, and the test set played no part."
    ]
    if others:
        sentences.append(f"Some took the choice of a relative: {', '.join(others)}.")
    if any((entry.tuned_as or name) not in tried for name, entry in entries.items()):
        sentences.append("All others have the settings of the plan, without a trial.")
    return " ".join(sentences)


def _systems(question: AnsweredQuestion) -> Table:
    """The systems of which there is a run; a row for each that is still to be trained would hide them."""
    plan = question.part.plan
    rows = []
    for name, system in question.systems.items():
        if not system.runs:
            continue
        taken = {run.alternative for runs in system.runs.values() for run in runs}
        changes = [" ".join(plan.alternatives_of(name)[each]) or "own" for each in sorted(taken)]
        size = parameters(system)
        entry = plan.systems[name]
        settings = [*(f"{setting} (both stacks)" for setting in entry.both), *entry.settings]
        rows.append(
            (
                name,
                entry.description,
                " ".join(settings),
                " or ".join(changes),
                size / _MILLION if size else None,
            )
        )
    return Table(
        title="Systems",
        columns=(
            Column(name="system"),
            Column(name="what it is"),
            Column(name="settings"),
            Column(name="taken by trials"),
            Column(name="parameters", unit="M", digits=2),
        ),
        rows=tuple(rows),
    )


def _standings(question: AnsweredQuestion) -> Table:
    goals: Mapping[Goal, str] = {"equal": "equal updates", "plateau": "the end of its training"}
    rows = [
        _standing_row(system, question.systems, goal, where)
        for goal, where in goals.items()
        for system in question.systems.values()
        if system.standings(goal) or system.failures(goal)
    ]
    return Table(
        title="After equal updates, and at the end of each system's training",
        columns=(
            Column(name="at"),
            Column(name="system"),
            Column(name="seeds"),
            Column(name="updates"),
            Column(name="target tokens", unit="M", digits=1),
            Column(name="validation loss", unit="nats/token", digits=3),
            Column(name="BLEU", digits=2),
            Column(name="sd", digits=2),
            Column(name="chrF", digits=2),
            Column(name="training", unit="h", digits=2),
            Column(name="remark"),
        ),
        rows=tuple(rows),
    )


def _standing_row(
    system: SystemResults, systems: Mapping[str, SystemResults], goal: Goal, where: str
) -> tuple[Cell, ...]:
    by_seed = system.standings(goal)
    failures = system.failures(goal)
    if not by_seed:
        return (where, system.system, 0, None, None, None, None, None, None, None, f"failed: {failures[0]}")
    standings = [standing for of_seed in by_seed.values() for standing in of_seed]
    losses = [standing.best_nll for standing in standings if standing.best_nll is not None]
    bleu = system.bleu(goal)
    remarks = [] if has_learned(system, systems, goal) else ["has not learned to translate"]
    if goal == "plateau" and not all(standing.stood_still for standing in standings):
        remarks.append("still learning at its limit")
    remarks += [f"a run failed: {why}" for why in failures]
    return (
        where,
        system.system,
        len(by_seed),
        round(statistics.fmean(standing.updates for standing in standings)),
        statistics.fmean(standing.target_tokens for standing in standings) / _MILLION,
        statistics.fmean(losses) if losses else None,
        statistics.fmean(bleu),
        statistics.stdev(bleu) if len(bleu) > 1 else None,
        statistics.fmean(test.chrf for standing in standings for test in standing.tests.values()),
        statistics.fmean(standing.seconds for standing in standings) / _HOUR,
        "; ".join(remarks),
    )


def _notes(question: AnsweredQuestion) -> Iterator[str]:
    begun = {name: system for name, system in question.systems.items() if system.runs}
    if waiting := [name for name in question.systems if name not in begun]:
        yield f"Not yet trained: {', '.join(waiting)}."
    goals: dict[Goal, str] = {"equal": "the common update"}
    if question.part.plateau:
        goals["plateau"] = "the end"
    for goal, where in goals.items():
        if left := sorted(name for name, system in begun.items() if not system.standings(goal)):
            yield f"Not yet trained to {where}: {', '.join(left)}."
    runs = [
        run for system in question.systems.values() for of_seed in system.runs.values() for run in of_seed
    ]
    kinds = dict.fromkeys(
        ", ".join(f"{name} {value}" for name, value in run.trained_with.items()) for run in runs
    )
    for kind in kinds:
        yield f"Trained with {kind}."
    if days := sorted(run.date[:_DAY] for run in runs if run.date):
        yield f"Measured on {days[0]}." if days[0] == days[-1] else f"Measured from {days[0]} to {days[-1]}."
    signatures = dict.fromkeys(
        test.signature
        for run in runs
        for standing in run.standings.values()
        for test in standing.tests.values()
    )
    for signature in signatures:
        yield f"BLEU: {signature}."
    decoding = dict.fromkeys(
        json.dumps(standing.settings) for run in runs for standing in run.standings.values()
    )
    for settings in decoding:
        yield f"Decoding: {', '.join(f'{name} {value}' for name, value in json.loads(settings).items())}."
    if outdated := [name for name, system in question.part.outdated.items() if system in question.systems]:
        yield f"Measured with other settings than the plan has now, and left out: {', '.join(outdated)}."


def _curve(system: SystemResults, begin: int) -> Series | None:
    runs = [run for of_seed in system.runs.values() for run in of_seed if run.curve.updates]
    if not runs:
        return None
    values = [_losses(run) for run in runs]
    updates = sorted({update for each in values for update in each if update >= begin})
    # Beyond the update at which the first of several seeds stood still, a mean would jump.
    shared = [update for update in updates if all(update in each for each in values)]
    at = [[each[update] for each in values] for update in shared]
    several = len(runs) > 1
    return Series(
        name=system.system,
        x=tuple(map(float, shared)),
        y=tuple(statistics.fmean(losses) for losses in at),
        low=tuple(map(min, at)) if several else (),
        high=tuple(map(max, at)) if several else (),
    )


def _losses(run: QuestionResult) -> dict[int, float]:
    both = zip(run.curve.updates, run.curve.nll, strict=True)
    return {update: nll for update, nll in both if nll is not None}
