"""What was run, as a finding: every single run, the systems with all their settings, and what failed."""

from __future__ import annotations

from collections.abc import Mapping

from deepwire.lab.experiments.results.experiment_runner import ExperimentRunner, GatheredResults
from deepwire.lab.experiments.results.results_plan import OWN, Plan
from deepwire.lab.experiments.results.run_measurement import conditions
from deepwire.lab.report.finding import Finding, provenance
from deepwire.lab.report.tables_and_figures import Column, Table

_MILLION = 10**6
_MINUTE = 60


def runs_finding(runner: ExperimentRunner, gathered: GatheredResults) -> Finding:
    """Every run, what the systems are, and what failed."""
    plan = runner.loaded.plan
    table = Table(
        title="Every run",
        columns=(
            Column(name="direction"),
            Column(name="system"),
            Column(name="seed"),
            Column(name="BLEU", digits=2),
            Column(name="chrF", digits=2),
            Column(name="last validation loss", unit="nats/token", digits=3),
            Column(name="updates"),
            Column(name="target tokens", unit="M", digits=2),
            Column(name="training", unit="min", digits=1),
            Column(name="memory", unit="MiB", digits=0),
        ),
        rows=tuple(
            (
                result.direction,
                result.system,
                result.seed,
                result.bleu,
                result.chrf,
                result.valid_loss,
                result.updates,
                result.target_tokens / _MILLION,
                result.training_seconds / _MINUTE,
                result.memory / 2**20,
            )
            for result in gathered.results
        ),
    )
    tables = [table, _systems(plan, runner.search.taken())]
    if plan.families:
        tables.append(_families(plan))
    if gathered.failures:
        tables.append(
            Table(
                title="Runs that failed",
                columns=(Column(name="run"), Column(name="exit code"), Column(name="message")),
                rows=tuple((run.name, why.exit_code, why.message) for run, why in gathered.failures),
            )
        )
    kinds = "translations of test sets" if plan.joint else "runs"
    return Finding(
        analysis="runs",
        title=f"{plan.title}: the runs",
        measured=f"{len(gathered.results)} {kinds} measured, {len(gathered.failures)} runs failed, "
        f"{len(gathered.missing)} not done yet. All start from {plan.base}, unless the table of systems "
        f"names another base, with {' '.join(plan.settings) or 'no other settings'}.",
        tables=tuple(tables),
        notes=(*conditions(gathered.results), *gathered.not_run(plan.systems)),
        provenance=provenance(),
    )


def _families(plan: Plan) -> Table:
    return Table(
        title="Settings that several systems share",
        columns=(Column(name="systems"), Column(name="settings"), Column(name="why")),
        rows=tuple(
            (", ".join(family.systems), " ".join(family.settings), family.why)
            for family in plan.families.values()
        ),
    )


def _systems(plan: Plan, taken: Mapping[str, str]) -> Table:
    """The systems with all that they set, and what the search has taken where it did."""
    return Table(
        title="The systems",
        columns=(
            Column(name="system"),
            Column(name="what it is"),
            Column(name="a model for"),
            Column(name="settings"),
        ),
        rows=tuple(
            (
                name,
                system.description,
                "all directions" if system.one_model else "each direction",
                " ".join(
                    [
                        *([f"base {system.base}"] if system.base else []),
                        *plan.family_settings(name),
                        *(f"{setting} (both stacks)" for setting in system.both),
                        *system.settings,
                        *plan.alternatives_of(name)[taken.get(name, OWN)],
                    ]
                ),
            )
            for name, system in plan.systems.items()
        ),
    )
