"""Systems of many directions as findings: averages, every direction, and pairs of systems."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from deepwire.analysis.direction_scores import direction_figures, direction_notes, direction_tables
from deepwire.analysis.report.figures import Axis, Bars, Series
from deepwire.analysis.report.finding import Finding, provenance
from deepwire.analysis.report.report_tables import Cell, Column, Table
from deepwire.experiments.results.run_measurement import RunResult, pace
from deepwire.experiments.results.system_comparison import ComparedPair, SystemComparison

_MILLION = 10**6
_MINUTE = 60


def directions_findings(found: SystemComparison, compared: Sequence[ComparedPair]) -> list[Finding]:
    """The findings of a plan whose directions are shown together; none before anything was measured."""
    if not found.systems():
        return []
    return [_summary(found), *(_comparison(found, one) for one in compared)]


def _summary(found: SystemComparison) -> Finding:
    plan = found.plan
    notes = [f"Failed: {run.name}: {why.message}" for run, why in found.gathered.failures]
    notes += found.gathered.not_run(plan.systems)
    settings = next(iter(found.gathered.results)).settings
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
            f"machine that trained, {pace(found.gathered.results)}: target tokens per second, sentences per "
            "second."
        ),
        tables=(
            Table(title="All systems", columns=_columns(found), rows=tuple(_rows(found))),
            _matrix(found, "BLEU", lambda result: result.bleu),
            _matrix(found, "chrF", lambda result: result.chrf),
        ),
        figures=(_figure(found),),
        notes=(*notes, *found.metrics.notes),
        provenance=provenance(
            settings={k: v for k, v in settings.items() if k not in ("BLEU", "text digest")}
        ),
    )


def _columns(found: SystemComparison) -> tuple[Column, ...]:
    centre = found.plan.centre
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


def _rows(found: SystemComparison) -> list[tuple[Cell, ...]]:
    plan = found.plan
    kinds = [
        found.directions(source=plan.centre),
        found.directions(target=plan.centre),
        found.directions(),
    ]
    rows = []
    for system in found.systems():
        models = found.models(system)
        measured = [name for name in plan.directions if found.of(system, name)]
        against = found.against_baseline(system)
        rows.append(
            (
                f"{system} (baseline)" if system == plan.baseline else system,
                *(found.mean(system, kind, lambda result: result.bleu) for kind in kinds),
                *(found.mean(system, kind, lambda result: result.chrf) for kind in kinds),
                *_against(against),
                f"{len(measured)} of {len(plan.directions)}",
                len(models),
                sum(model.parameters for model in models) / _MILLION,
                max(model.updates for model in models),
                statistics.fmean(model.training_speed for model in models),
                sum(model.training_seconds for model in models) / _MINUTE,
                statistics.harmonic_mean([result.decoding_speed for result in found.of(system)]),
            )
        )
    return rows


def _against(compared: ComparedPair | None) -> tuple[Cell, Cell, Cell]:
    if compared is None:
        return None, None, None
    average = compared.average
    return average.win_ratio, average.significant(1), average.significant(-1)


def _matrix(found: SystemComparison, name: str, number: Callable[[RunResult], float]) -> Table:
    """One row for each direction, one column for each system."""
    systems = found.systems()
    return Table(
        title=f"{name} of every direction",
        columns=(Column(name="direction"), *(Column(name=system, digits=2) for system in systems)),
        rows=tuple(
            (direction, *(found.mean(system, [direction], number) for system in systems))
            for direction in found.plan.directions
        ),
    )


def _figure(found: SystemComparison) -> Bars:
    systems = found.systems()
    return Bars(
        name="bleu",
        title="BLEU of every direction",
        caption="Means over seeds.",
        x=Axis(label="direction"),
        y=Axis(label="BLEU"),
        categories=tuple(found.plan.directions),
        series=tuple(
            Series(
                name=system,
                y=tuple(
                    found.mean(system, [direction], lambda result: result.bleu)
                    for direction in found.plan.directions
                ),
            )
            for system in systems
        ),
    )


def _comparison(found: SystemComparison, one: ComparedPair) -> Finding:
    report, pair = one.report, one.plan
    notes = list(direction_notes(report))
    if one.missing:
        notes.insert(0, f"Not measured of both yet, and in none of the averages: {', '.join(one.missing)}.")
    return Finding(
        analysis=f"comparison-{pair.system}-{pair.baseline}",
        title=f"{found.plan.title}: {one.title}",
        measured=(
            f"{pair.system} against {pair.baseline} on {report.test}, in each direction with the seeds that "
            "both have; outputs of several seeds are scored as one text. p: two-sided, paired bootstrap over "
            f"{report.paired.samples if report.paired else 0} resamples of the sentences, and of the runs "
            "where there are several seeds."
        ),
        tables=direction_tables(report),
        figures=direction_figures(report),
        notes=tuple(notes),
        provenance=provenance(),
    )
