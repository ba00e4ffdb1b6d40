"""The results as findings: a ranking for each direction, the papers' claims, and every single run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from deepwire.errors import DataError
from deepwire.evaluation.multilingual.direction_table import samples_for
from deepwire.evaluation.significance import Comparison
from deepwire.lab.experiments.results.direction_findings import directions_findings
from deepwire.lab.experiments.results.experiment_runner import ExperimentRunner, GatheredResults
from deepwire.lab.experiments.results.paper_claims import (
    FAILED,
    SIGNIFICANT,
    Verdict,
    count_outcomes,
    judge,
)
from deepwire.lab.experiments.results.planned_runs import RunPlan
from deepwire.lab.experiments.results.ranking import (
    OutputStatistics,
    RankedSystem,
    corrected,
    means,
    rank_systems,
)
from deepwire.lab.experiments.results.results_plan import Plan
from deepwire.lab.experiments.results.run_findings import runs_finding
from deepwire.lab.experiments.results.run_measurement import RunResult, metric_of, pace
from deepwire.lab.experiments.results.system_comparison import ComparedPair, SystemComparison
from deepwire.lab.report.finding import Finding, provenance
from deepwire.lab.report.tables_and_figures import Axis, BarChart, Column, Series, Table
from deepwire.lab.subject.model_and_text import ParallelText

_MILLION = 10**6
_TESTED = (
    Column(name="delta", digits=2),
    Column(name="95 % of delta"),
    Column(name="p", digits=3),
    Column(name="p (Holm)", digits=3),
)
"""Columns of a test against the baseline: `_tested`."""


@dataclass(frozen=True)
class ResultsReport:
    """Everything that there is so far.

    Attributes:
        gathered: What it is made of.
        findings: Tables and figures of the pages.
        comparisons: Pairs of systems direction by direction, where directions are shown together.
    """

    gathered: GatheredResults
    findings: tuple[Finding, ...]
    comparisons: tuple[ComparedPair, ...]


def build_report(runner: ExperimentRunner) -> ResultsReport:
    """Everything that there is so far: averages, comparisons or rankings, claims, runs.

    Raises:
        DataError: A translation or the test set is gone.
    """
    plan, gathered = runner.loaded.plan, runner.gather()
    side_by_side = SystemComparison(runner, gathered) if plan.joint else None
    compared = side_by_side.comparisons() if side_by_side else []
    findings = directions_findings(side_by_side, compared) if side_by_side else []
    verdicts = list[Verdict]()
    for direction in plan.directions:
        if side_by_side is not None and not runner.loaded.claims:
            break
        of_direction = [result for result in gathered.results if result.direction == direction]
        if not of_direction:
            continue
        texts = _texts(runner, direction, of_direction)
        ranks = rank_systems(of_direction, next(iter(texts.values())), plan.baseline, _samples(plan))
        outputs = OutputStatistics.together(list(texts.values()))
        together = _together(plan, of_direction, outputs) if len(texts) > 1 else ranks
        if side_by_side is None:
            findings.append(_ranking_finding(plan, direction, ranks, gathered, next(iter(texts))))
            if together is not ranks:
                missing = [
                    f"{result.system}.{result.seed}" for result in of_direction if result not in outputs
                ]
                findings.append(_all_texts(plan, direction, together, texts, missing))
        verdicts += _verdicts(runner, direction, ranks, together, outputs, gathered)
    if verdicts:
        findings.append(_claims(plan, verdicts))
    findings += runner.search.findings()
    findings.append(runs_finding(runner, gathered))
    return ResultsReport(gathered, tuple(findings), tuple(compared))


def _samples(plan: Plan) -> int:
    """So many that p-values can pass Holm's correction for all systems with room to spare."""
    return max(plan.samples, 2 * samples_for(len(plan.systems)))


def _texts(
    runner: ExperimentRunner, direction: str, results: Sequence[RunResult]
) -> dict[str, OutputStatistics]:
    """What the test sets of a direction are called, the run files' own first, and their translations.

    Raises:
        DataError: Not all runs were scored on the same text, or a translation is gone.
    """
    if len({result.settings.get("text digest") for result in results}) > 1:
        raise DataError(
            f"{direction}: the systems were scored on different test sets",
            "give all systems of the plan one data.test",
        )
    measured = {(result.system, result.seed): result for result in results}
    done = [
        (run, measured[run.system, run.seed])
        for run in runner.loaded.runs
        if direction in run.directions and (run.system, run.seed) in measured
    ]
    first = done[0][0]
    metric, test_set = metric_of("bleu", first, direction), runner.test_set(first, direction)

    def outputs(
        pairs: ParallelText, lines_of: Callable[[RunPlan, RunResult], Sequence[str] | None]
    ) -> OutputStatistics:
        translations = {(run.system, run.seed): lines_of(run, result) for run, result in done}
        there = {key: lines for key, lines in translations.items() if lines is not None}
        return OutputStatistics.of(metric, pairs.reference.answers, there)

    texts = {test_set.description: outputs(test_set, lambda run, _: runner.lines(run, direction))}
    for name, pairs in runner.extra_tests.pairs(direction).items():
        texts[f"{name}, {len(pairs.source.lines):,} pairs"] = outputs(
            pairs, partial(runner.extra_tests.lines, name=name)
        )
    return texts


def _together(plan: Plan, results: Sequence[RunResult], outputs: OutputStatistics) -> list[RankedSystem]:
    """The systems by their BLEU on all texts as one, of the runs that have translated all."""
    done = [result for result in results if result in outputs]
    scored = [result.model_copy(update={"bleu": outputs.score(result)}) for result in done]
    return rank_systems(scored, outputs, plan.baseline, _samples(plan))


def _ranking_finding(
    plan: Plan, direction: str, ranks: Sequence[RankedSystem], gathered: GatheredResults, text: str
) -> Finding:
    failed = [(run, why) for run, why in gathered.failures if direction in run.directions]
    notes = [f"Failed: {run.system}, seed {run.seed}: {why.message}" for run, why in failed]
    return Finding(
        analysis=f"league-{direction}",  # what stored findings call it
        title=f"{plan.title}: {direction}",
        measured=(
            "Systems ranked by mean BLEU over seeds, on the test set, with the best checkpoint of each run. "
            f"sd: standard deviation over seeds. delta: difference from {plan.baseline} in mean BLEU over "
            "the seeds that both have, with its 95 % interval and two-sided p-value from paired bootstrap "
            f"resampling. Each of {_samples(plan)} "
            "resamples draws sentences, and of the seeds that both systems have as many runs of each system. "
            "So p and interval count what depends on the seed, roughly where there are two or three. With "
            "one seed, they say nothing about others. p (Holm): corrected for the number of systems in the "
            "table. Below 0.05, a difference is more than an effect of many comparisons on this test set. "
            "Speeds are those of the machine that trained, "
            f"{pace([result for rank in ranks for result in rank.results])}: target tokens per second, "
            "sentences per second."
        ),
        tables=(_ranking_table(plan, ranks),),
        figures=(_ranking_figure(plan, ranks),),
        notes=(*notes, *gathered.not_run(plan.systems, direction)),
        provenance=provenance(data=(text,), settings=dict(ranks[0].results[0].settings)),
    )


def _ranking_table(plan: Plan, ranks: Sequence[RankedSystem]) -> Table:
    columns = (
        Column(name="rank"),
        Column(name="system"),
        Column(name="BLEU", digits=2),
        Column(name="sd", digits=2),
        Column(name="seeds"),
        *_TESTED,
        Column(name="chrF", digits=2),
        Column(name="parameters", unit="M", digits=3),
        Column(name="training", unit="tok/s", digits=0),
        Column(name="decoding", unit="sent/s", digits=1),
    )
    rows = []
    after_all = corrected(ranks)
    for rank, ranked in enumerate(ranks, 1):
        bleu = ranked.bleu
        rows.append(
            (
                rank,
                _called(plan, ranked),
                bleu.mean,
                bleu.deviation,
                bleu.count,
                *_tested(ranked.comparison, after_all[rank - 1]),
                ranked.mean("chrf"),
                ranked.mean("parameters") / _MILLION,
                ranked.mean("training_speed"),
                ranked.mean("decoding_speed"),
            )
        )
    return Table(title="Ranking", columns=columns, rows=tuple(rows))


def _all_texts(
    plan: Plan,
    direction: str,
    ranks: Sequence[RankedSystem],
    texts: Mapping[str, OutputStatistics],
    missing: Sequence[str],
) -> Finding:
    columns = (
        Column(name="rank"),
        Column(name="system"),
        Column(name="seeds"),
        *(Column(name=name, digits=2) for name in ("data.test", *plan.more_tests)),
        Column(name="all", digits=2),
        Column(name="sd", digits=2),
        *_TESTED,
    )
    after_all = corrected(ranks)
    rows = []
    for rank, ranked in enumerate(ranks, 1):
        scores = [[outputs.score(result) for result in ranked.results] for outputs in texts.values()]
        rows.append(
            (
                rank,
                _called(plan, ranked),
                ranked.bleu.count,
                *(fmean(each) for each in scores),
                ranked.bleu.mean,
                ranked.bleu.deviation,
                *_tested(ranked.comparison, after_all[rank - 1]),
            )
        )
    return Finding(
        analysis=f"texts-{direction}",
        title=f"{plan.title}: {direction}, on {len(texts)} test sets",
        measured=(
            "The same models on several test sets: a difference on one of them may not be there on another. "
            "BLEU of each test set, and of all of them concatenated (column all), to which the rank and all "
            "columns to its right refer. Only runs that have translated all test sets are included; tests "
            "as in the ranking."
        ),
        tables=(Table(title="BLEU by test set", columns=columns, rows=tuple(rows)),),
        notes=(f"Not translated yet: {', '.join(missing)}.",) if missing else (),
        provenance=provenance(data=tuple(texts)),
    )


def _called(plan: Plan, ranked: RankedSystem) -> str:
    return f"{ranked.system} (baseline)" if ranked.system == plan.baseline else ranked.system


def _tested(test: Comparison | None, after_all: float | None) -> tuple[float | str | None, ...]:
    """What stands under `_TESTED`; nothing for the baseline."""
    if test is None:
        return (None, "", None, None)
    bounds = test.difference_interval
    interval = (
        ""
        if bounds is None
        else " to ".join(f"{round(end, 2) + 0.0:+.2f}" for end in (bounds.low, bounds.high))
    )
    return (test.difference, interval, test.p_value, after_all)


def _ranking_figure(plan: Plan, ranks: Sequence[RankedSystem]) -> BarChart:
    return BarChart(
        name="bleu",
        title="BLEU of all systems",
        caption=f"Means over seeds, with the lowest and the highest; {plan.baseline} is the baseline.",
        x=Axis(label="system"),
        y=Axis(label="BLEU"),
        categories=tuple(ranked.system for ranked in ranks),
        series=(
            Series(
                name="BLEU",
                y=tuple(ranked.bleu.mean for ranked in ranks),
                low=tuple(ranked.bleu.low for ranked in ranks),
                high=tuple(ranked.bleu.high for ranked in ranks),
            ),
        ),
    )


def _verdicts(
    runner: ExperimentRunner,
    direction: str,
    ranks: Sequence[RankedSystem],
    together: Sequence[RankedSystem],
    outputs: OutputStatistics,
    gathered: GatheredResults,
) -> list[Verdict]:
    """The claims held against the speeds of `ranks`, and the BLEU of `together`, that of `outputs`."""
    why = {run.system: FAILED for run, _ in gathered.failures if direction in run.directions}
    half = {ranked.system for ranked in ranks} - {ranked.system for ranked in together}
    why |= dict.fromkeys(half, "has not translated all test sets")
    verdicts = []
    for claim in runner.loaded.claims:
        of_text = claim.measure == "bleu"
        measured = means(together if of_text else ranks, (claim.higher, claim.lower), claim.measure)
        test = None
        if of_text and len(measured) > 1:
            test = outputs.compare(claim.lower, claim.higher, _samples(runner.loaded.plan))
        verdicts.append(judge(claim, direction, measured, test, why))
    return verdicts


def _claims(plan: Plan, verdicts: Sequence[Verdict]) -> Finding:
    counts = count_outcomes(verdicts)
    judged = [name for name in plan.directions if any(verdict.direction == name for verdict in verdicts)]
    outcomes = sorted({outcome for _, outcome in counts})
    summary = Table(
        title="How many claims about BLEU went which way",
        columns=(Column(name="outcome here"), *(Column(name=name) for name in judged)),
        rows=tuple((outcome, *(counts[direction, outcome] for direction in judged)) for outcome in outcomes),
    )
    of_text = [verdict for verdict in verdicts if verdict.claim.measure == "bleu"]
    speeds = [verdict for verdict in verdicts if verdict.claim.measure != "bleu"]
    tables = [summary, _claim_table("Claim by claim", of_text)]
    if speeds:
        tables.append(_claim_table("Speeds, which are not counted", speeds))
    return Finding(
        analysis="claims",
        title=f"{plan.title}: what the papers say, and what was found here",
        measured=(
            "In each claim, a paper reports one system above another. Here the same two systems are "
            "compared, with the models of this "
            f"page{' and all of its test sets concatenated' if plan.more_tests else ''}. Only the direction "
            "of a difference can be compared with the paper's, not the numbers. These are means over the "
            "seeds that both systems have. Without a common seed, each system has its own and the two are "
            f"not tested. A difference in BLEU with p below {SIGNIFICANT} (two-sided) counts as settled on "
            "these test sets for the seeds that were trained. Each claim is tested separately: among twenty "
            "pairs without any difference, one would be settled by chance. Two papers that say the same of a "
            "pair count once. So do all claims that one thing other than the systems decides, such as a "
            "bad start; the count names it. Speeds are not counted: those of the same two systems vary by "
            "up to a quarter between the two directions. A claim that does not hold here says little about "
            "other model sizes and data."
        ),
        tables=tuple(tables),
        provenance=provenance(),
    )


def _claim_table(title: str, verdicts: Sequence[Verdict]) -> Table:
    return Table(
        title=title,
        columns=(
            Column(name="claim"),
            Column(name="paper"),
            Column(name="where"),
            Column(name="there"),
            Column(name="direction"),
            Column(name="here"),
            Column(name="p", digits=3),
            Column(name="outcome"),
            Column(name="remark"),
        ),
        rows=tuple(_claim_row(verdict) for verdict in verdicts),
    )


def _claim_row(verdict: Verdict) -> tuple[str | float | None, ...]:
    claim = verdict.claim
    measure = claim.measure.replace("_", " ").replace("bleu", "BLEU")
    there = "not legible in our copy" if claim.numbers is None else _pair(claim.numbers)
    return (
        f"{claim.higher} above {claim.lower} ({measure})",
        claim.paper,
        f"{claim.where}{f', {claim.task}' if claim.task else ''}",
        there,
        verdict.direction,
        "" if verdict.here is None else _pair(verdict.here),
        verdict.p_value,
        verdict.outcome,
        "; ".join(filter(None, [claim.cause, claim.remark])),
    )


def _pair(numbers: tuple[float, float]) -> str:
    return " / ".join(f"{number:.2f}" if number < 100 else f"{number:,.0f}" for number in numbers)
