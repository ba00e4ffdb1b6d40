"""Answers in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from deepwire.experiments.questions.answers import AnsweredQuestion
from deepwire.experiments.questions.question_plan import Goal
from deepwire.experiments.questions.question_verdicts import (
    ClaimOutcome,
    ClaimVerdict,
    GoalVerdict,
    SystemResults,
    has_learned,
)

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
    missing = verdict.plateau.outcome is ClaimOutcome.MISSING
    rest = ["Longer training is not yet measured."] if missing else []
    return " ".join([f"**{sentence}**", *claim_numbers(question, verdict), *rest])


def claim_numbers(question: AnsweredQuestion, verdict: ClaimVerdict) -> Iterator[str]:
    """Sentences with the numbers behind a verdict, after equal updates and at plateaus that are known."""
    updates = question.part.equal_updates
    yield _at(f"After {updates:,} updates", question, verdict, verdict.equal)
    if verdict.plateau.outcome is not ClaimOutcome.MISSING:
        where = "Where both stand still" if verdict.plateau.still else "As far as they were trained"
        yield _at(where, question, verdict, verdict.plateau)


def claim_lines(question: AnsweredQuestion) -> Iterator[str]:
    """One line for each claim that was measured, and one for all that were not."""
    waiting = []
    for verdict in question.verdicts:
        claim = verdict.claim
        if verdict.outcome is ClaimOutcome.MISSING:
            waiting.append(f"{claim.says} ({claim.paper})")
            continue
        yield " ".join(
            [
                f"- {claim.says[0].upper()}{claim.says[1:]} ({claim.paper}). Here: *{verdict.outcome}*.",
                *claim_numbers(question, verdict),
            ]
        )
    if waiting:
        yield f"- Not yet measured: {'; '.join(waiting)}."


def count_of_claims(questions: Sequence[AnsweredQuestion]) -> str:
    """How many claims went which way, in one paragraph.

    Claims of a question with one outcome that rest on the same system count once: a system that learns slowly
    loses to all others, and that is one fact.
    """
    every = [(question.name, verdict) for question in questions for verdict in question.verdicts]
    facts = Counter(outcome for *_, outcome in {_fact(name, verdict) for name, verdict in every})
    waiting = facts.pop(ClaimOutcome.MISSING, 0)
    parts = [f"*{outcome}* ({facts[outcome]})" for outcome in ClaimOutcome if facts[outcome]]
    found = f" They make {facts.total()} findings: {', '.join(parts)}." if parts else ""
    return (
        f"The papers make {len(every)} claims about pairs of systems. {len(every) - waiting} of them were "
        f"measured.{found} Claims of a question that put the same system first and come out alike are one "
        "finding. They are judged at the end of the long training where both systems have had it, otherwise "
        "after equal updates. Speeds are not among them, and a system that has not learned to translate "
        "decides none."
    )


def _fact(question: str, verdict: ClaimVerdict) -> tuple[str, str, str, ClaimOutcome]:
    """What claims have in common that count once; what is not measured is no fact yet."""
    claim, outcome = verdict.claim, verdict.outcome
    alone = claim.than if outcome in (ClaimOutcome.MISSING, ClaimOutcome.FAILED) else ""
    return question, claim.better, alone, outcome


def _at(where: str, question: AnsweredQuestion, verdict: ClaimVerdict, at_goal: GoalVerdict) -> str:
    if at_goal.bleu is None or at_goal.difference is None or at_goal.bounds is None:
        return f"{where}: {at_goal.outcome}."
    names = [_with_size(question.systems[name]) for name in (verdict.claim.better, verdict.claim.than)]
    seeds = "1 seed" if len(at_goal.seeds) == 1 else f"{len(at_goal.seeds)} seeds"
    return (
        f"{where}, {names[0]} has {at_goal.bleu[0]:.1f} and {names[1]} {at_goal.bleu[1]:.1f} BLEU "
        f"({at_goal.difference:+.2f}, 95 % {at_goal.bounds.low:+.2f} to {at_goal.bounds.high:+.2f}, "
        f"p {at_goal.p_value:.3f}, {seeds})."
    )


def _with_size(system: SystemResults) -> str:
    return f"{system.system} ({parameters(system) / _MILLION:.1f}M parameters)"


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
