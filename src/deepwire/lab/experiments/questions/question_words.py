"""Answers in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from deepwire.lab.experiments.questions.answers import AnsweredQuestion
from deepwire.lab.experiments.questions.question_plan import ClaimPlan, Goal
from deepwire.lab.experiments.questions.question_verdicts import (
    ClaimOutcome,
    ClaimVerdict,
    GoalVerdict,
    SystemResults,
    has_learned,
)
from deepwire.lab.report.tables_and_figures import Cell, Column, Table

_MILLION = 10**6


def answer_of(question: AnsweredQuestion) -> str:
    """The answer: a sentence of the plan for what was found of the first claim, and its numbers."""
    verdict, sentences = question.verdicts[0], question.plan.answers
    match verdict.outcome:
        case ClaimOutcome.HOLDS:
            sentence = sentences.holds
        case ClaimOutcome.REVERSED:
            sentence = sentences.reversed
        case ClaimOutcome.OPEN:
            sentence = sentences.open
        case ClaimOutcome.NOT_LEARNED:
            sentence = f"Not decided: {_who_has_not_learned(question, verdict)}."
        case ClaimOutcome.FAILED:
            sentence = "Not decided: a run failed."
        case ClaimOutcome.MISSING:
            return "**Not yet measured.**"
    missing = question.part.plateau and verdict.plateau.outcome is ClaimOutcome.MISSING
    rest = ["Longer training is not yet measured."] if missing else []
    return " ".join([f"**{sentence}**", *claim_numbers(question, verdict), *rest])


def claim_numbers(question: AnsweredQuestion, verdict: ClaimVerdict) -> Iterator[str]:
    """Sentences with the scores behind a verdict, after equal updates and at plateaus that are known."""
    better, than = verdict.claim.better, verdict.claim.than
    for when, at_goal in _measured(question, verdict):
        if at_goal.bleu is None:
            yield f"{when}: {at_goal.outcome}."
        else:
            first, second = at_goal.bleu
            yield f"{when}, {better} has {first:.1f} BLEU and {than} {second:.1f} (p {at_goal.p_value:.3f})."


def claims_table(question: AnsweredQuestion) -> Table | None:
    """The claims that were measured: a row for equal updates, and one for plateaus where they are known."""
    rows: list[tuple[Cell, ...]] = []
    for verdict in question.verdicts:
        if verdict.outcome is ClaimOutcome.MISSING:
            continue
        says = verdict.claim.says
        named = f"{says[0].upper()}{says[1:]}", verdict.claim.paper
        for when, at_goal in _measured(question, verdict):
            difference, bounds = at_goal.difference, at_goal.bounds
            rows.append(
                (
                    *named,
                    str(at_goal.outcome),
                    when,
                    _scores(question, verdict.claim, at_goal.bleu),
                    "" if difference is None else f"{difference:+.2f}",
                    "" if bounds is None else f"{bounds.low:+.2f} to {bounds.high:+.2f}",
                    at_goal.p_value,
                    _seeds(at_goal),
                )
            )
            named = "", ""
    columns = (
        Column(name="claim"),
        Column(name="paper"),
        Column(name="here"),
        Column(name="when"),
        Column(name="BLEU (parameters)"),
        Column(name="difference"),
        Column(name="95 %"),
        Column(name="p", digits=3),
        Column(name="seeds"),
    )
    return Table(title=f"{question.name}: claims", columns=columns, rows=tuple(rows)) if rows else None


def unmeasured_claims(question: AnsweredQuestion) -> str:
    """A sentence for all claims that were not measured; nothing where all were."""
    claims = [each.claim for each in question.verdicts if each.outcome is ClaimOutcome.MISSING]
    named = "; ".join(f"{claim.says} ({claim.paper})" for claim in claims)
    return f"Not yet measured: {named}." if claims else ""


def count_of_claims(questions: Sequence[AnsweredQuestion]) -> str:
    """How many claims went which way, in one paragraph.

    A claim that several questions ask counts once, where it has most seeds of both systems. Claims of a
    question with one outcome that rest on the same system count once: a system that learns slowly loses to
    all others, and that is one fact.
    """
    every = [(question.name, verdict) for question in questions for verdict in question.verdicts]
    measured = [entry for entry in every if entry[1].outcome is not ClaimOutcome.MISSING]
    # The last of several with as many seeds: questions go from short trainings to long ones.
    by_claim = {
        verdict.claim.says: (name, verdict)
        for name, verdict in sorted(measured, key=lambda entry: min(entry[1].decisive.seeds))
    }
    facts = Counter(outcome for *_, outcome in {_fact(*entry) for entry in by_claim.values()})
    parts = [f"*{outcome}* ({facts[outcome]})" for outcome in ClaimOutcome if facts[outcome]]
    found = f" They make {facts.total()} findings: {', '.join(parts)}." if parts else ""
    return (
        f"Claims of the papers were put to {len(every)} comparisons, of which {len(measured)} are measured. "
        "A claim in the same words in several questions counts where it has most seeds of both systems, or "
        f"in the last of them, which leaves {len(by_claim)}.{found} Claims of a question that put the same "
        "system first and come out alike are one finding. They are judged at the end of the long training "
        "where both systems have had it, otherwise after equal updates. Speeds are not among them, and a "
        "system that has not learned to translate decides none."
    )


def _fact(question: str, verdict: ClaimVerdict) -> tuple[str, str, str, ClaimOutcome]:
    """What claims have in common that count once."""
    claim, outcome = verdict.claim, verdict.outcome
    return question, claim.better, claim.than if outcome is ClaimOutcome.FAILED else "", outcome


def _measured(question: AnsweredQuestion, verdict: ClaimVerdict) -> Iterator[tuple[str, GoalVerdict]]:
    """When a claim was judged, in words: after equal updates, and at plateaus that are known."""
    yield f"After {question.part.equal_updates:,} updates", verdict.equal
    if verdict.plateau.outcome is not ClaimOutcome.MISSING:
        when = "Where both stand still" if verdict.plateau.still else "As far as they were trained"
        yield when, verdict.plateau


def _scores(question: AnsweredQuestion, claim: ClaimPlan, bleu: tuple[float, float] | None) -> str:
    """Both systems of a claim with their scores and sizes; nothing before both are there."""
    return "; ".join(
        f"{name} {score:.1f} ({parameters(question.systems[name]) / _MILLION:.1f}M)"
        for name, score in zip((claim.better, claim.than), bleu or (), strict=False)
    )


def _seeds(at_goal: GoalVerdict) -> str:
    """How many seeds both systems of a claim have, ``3``, or each of them, ``1 and 3``; empty without."""
    return " and ".join(map(str, dict.fromkeys(at_goal.seeds))) if all(at_goal.seeds) else ""


def parameters(system: SystemResults) -> int:
    """Of all models of a system with one seed."""
    return max((sum(run.parameters for run in runs) for runs in system.runs.values()), default=0)


def _who_has_not_learned(question: AnsweredQuestion, verdict: ClaimVerdict) -> str:
    goal: Goal = (
        "equal" if verdict.plateau.outcome in (ClaimOutcome.MISSING, ClaimOutcome.FAILED) else "plateau"
    )
    names = [
        name
        for name in (verdict.claim.better, verdict.claim.than)
        if not has_learned(question.systems[name], question.systems, goal)
    ]
    return f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} not learned to translate"
