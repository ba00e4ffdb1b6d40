"""Systems of many directions as findings: averages, every direction, and pairs of systems."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from deepwire.lab.direction_scores import direction_figures, direction_notes, direction_tables
from deepwire.lab.experiments.results.run_measurement import RunResult, pace
from deepwire.lab.experiments.results.system_comparison import ComparedPair, SystemComparison
from deepwire.lab.report.finding import Finding, provenance
from deepwire.lab.report.tables_and_figures import Axis, BarChart, Cell, Column, Series, Table

_MILLION = 10**6
_MINUTE = 60


def directions_findings(comparison: SystemComparison, compared: Sequence[ComparedPair]) -> list[Finding]:
    """The findings of a plan whose directions are shown together; none before anything was measured."""
    if not comparison.systems():
        return []
    return [_summary(comparison), *(_comparison(comparison, pair) for pair in compared)]


def _summary(comparison: SystemComparison) -> Finding:
    plan = comparison.plan
    notes = [f"Failed: {run.name}: {why.message}" for run, why in comparison.gathered.failures]
    notes += comparison.gathered.not_run(plan.systems)
    settings = next(iter(comparison.gathered.results)).settings
    return Finding(
        analysis="directions",
        title=f"{plan.title}: all systems",
        measured=(
            "BLEU and chrF on the test sets, with the best checkpoint of each model, averaged over the "
            f"directions out of {plan.centre}, those into {plan.centre} and all; an average is shown once "
            "all its directions have been measured. Win ratio: share of the directions measured for both "
            f"systems in which BLEU is higher than that of {plan.baseline}. better, worse: number of those "
            "with p below 0.05 (two-sided, each direction tested separately). Parameters and time are the "
            "sums over all models of a system; updates are those of each model. Speeds are those of the "
            f"machine that trained, {pace(comparison.gathered.results)}: target tokens per second, "
            "sentences per second."
        ),
        tables=(
            Table(title="All systems", columns=_columns(comparison), rows=tuple(_rows(comparison))),
            _matrix(comparison, "BLEU", lambda result: result.bleu),
            _matrix(comparison, "chrF", lambda result: result.chrf),
        ),
        figures=(_figure(comparison),),
        notes=(*notes, *comparison.metrics.notes),
        provenance=provenance(
            settings={k: v for k, v in settings.items() if k not in ("BLEU", "text digest")}
        ),
    )


def _columns(comparison: SystemComparison) -> tuple[Column, ...]:
    centre = comparison.plan.centre
    kinds = (f"out of {centre}", f"into {centre}", "all")
    return (
        Column(name="system"),
        *(Column(name=f"BLEU {kind}", digits=2) for kind in kinds),
        *(Column(name=f"chrF {kind}", digits=2) for kind in kinds),
        Column(name="win ratio", unit="%", digits=0),
        Column(name="better"),
        Column(name="worse"),
        Column(name="directions"),
        Column(name="models"),
        Column(name="parameters", unit="M", digits=3),
        Column(name="updates"),
        Column(name="training", unit="tok/s", digits=0),
        Column(name="time", unit="min", digits=1),
        Column(name="decoding", unit="sent/s", digits=1),
    )


def _rows(comparison: SystemComparison) -> list[tuple[Cell, ...]]:
    plan = comparison.plan
    kinds = [
        comparison.directions(source=plan.centre),
        comparison.directions(target=plan.centre),
        comparison.directions(),
    ]
    rows = []
    for system in comparison.systems():
        models = comparison.models(system)
        measured = [name for name in plan.directions if comparison.of(system, name)]
        against = comparison.against_baseline(system)
        rows.append(
            (
                f"{system} (baseline)" if system == plan.baseline else system,
                *(comparison.mean(system, kind, lambda result: result.bleu) for kind in kinds),
                *(comparison.mean(system, kind, lambda result: result.chrf) for kind in kinds),
                *_against(against),
                f"{len(measured)} of {len(plan.directions)}",
                len(models),
                sum(model.parameters for model in models) / _MILLION,
                max(model.updates for model in models),
                statistics.fmean(model.training_speed for model in models),
                sum(model.training_seconds for model in models) / _MINUTE,
                statistics.harmonic_mean([result.decoding_speed for result in comparison.of(system)]),
            )
        )
    return rows


def _against(compared: ComparedPair | None) -> tuple[Cell, Cell, Cell]:
    if compared is None:
        return None, None, None
    average = compared.average
    return average.win_ratio, average.significant(1), average.significant(-1)


def _matrix(comparison: SystemComparison, name: str, number: Callable[[RunResult], float]) -> Table:
    """One row for each direction, one column for each system."""
    systems = comparison.systems()
    return Table(
        title=f"{name} of every direction",
        columns=(Column(name="direction"), *(Column(name=system, digits=2) for system in systems)),
        rows=tuple(
            (direction, *(comparison.mean(system, [direction], number) for system in systems))
            for direction in comparison.plan.directions
        ),
    )


def _figure(comparison: SystemComparison) -> BarChart:
    systems = comparison.systems()
    return BarChart(
        name="bleu",
        title="BLEU of every direction",
        caption="Means over seeds.",
        x=Axis(label="direction"),
        y=Axis(label="BLEU"),
        categories=tuple(comparison.plan.directions),
        series=tuple(
            Series(
                name=system,
                y=tuple(
                    comparison.mean(system, [direction], lambda result: result.bleu)
                    for direction in comparison.plan.directions
                ),
            )
            for system in systems
        ),
    )


def _comparison(comparison: SystemComparison, compared: ComparedPair) -> Finding:
    report, pair = compared.report, compared.plan
    notes = list(direction_notes(report))
    if compared.missing:
        notes.insert(
            0, f"Not measured of both yet, and in none of the averages: {', '.join(compared.missing)}."
        )
    return Finding(
        analysis=f"comparison-{pair.system}-{pair.baseline}",
        title=f"{comparison.plan.title}: {compared.title}",
        measured=(
            f"{pair.system} against {pair.baseline} on {report.test}, in each direction with the seeds that "
            "both have; a score is the mean over them. p: two-sided, paired bootstrap over "
            f"{report.paired.samples if report.paired else 0} resamples of the sentences, and of the runs "
            "where there are several seeds."
        ),
        tables=direction_tables(report),
        figures=direction_figures(report),
        notes=tuple(notes),
        provenance=provenance(),
    )
