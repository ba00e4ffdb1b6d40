"""What the papers say about pairs of systems, and what was measured here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from deepwire.config.section import Section
from deepwire.config.settings_reader import read_settings
from deepwire.evaluation.significance import Comparison
from deepwire.runfile import locate

Measure = Literal["bleu", "training_speed", "decoding_speed"]
# Speeds that are nearer to each other are called equal.
_SAME = 0.1
SIGNIFICANT = 0.05
FAILED = "failed"
# Below this BLEU is hardly more than its smoothing and the length of the output.
_NOTHING = 1.0


class Claim(Section):
    """In a paper, one system has more of something than another."""

    paper: str = Field(description="authors and year")
    where: str = Field(description="table, figure or section")
    task: str = Field(default="", description="training and test text")
    measure: Measure = Field(default="bleu", description="what is compared")
    higher: str = Field(description="the system with more of it, as the plan calls it")
    lower: str = Field(description="the other one")
    numbers: tuple[float, float] | None = Field(
        default=None, description="of the higher and of the lower; null where the text at hand has lost them"
    )
    remark: str = Field(default="", description="how the paper's pair differs from this one")
    cause: str = Field(
        default="",
        description="what decides it in these runs instead of the two systems, such as a bad start; claims "
        "of one cause count once, under this name",
    )


class Claims(Section):
    """A file of claims."""

    claims: tuple[Claim, ...] = Field(description="one entry for each comparison")


@dataclass(frozen=True)
class Verdict:
    """A claim and what was found here, in one direction.

    Attributes:
        here: The numbers here, of the higher and the lower system of the paper; None where one is missing.
        p_value: Of the difference in BLEU, two-sided; None for speeds.
        outcome: In words.
        kind: The same without names of systems, to count by.
    """

    claim: Claim
    direction: str
    here: tuple[float, float] | None
    p_value: float | None
    outcome: str
    kind: str


def count_outcomes(verdicts: Iterable[Verdict]) -> Counter[tuple[str, str]]:
    """How many claims about BLEU went which way, by direction and outcome.

    Two papers that say the same of a pair are one claim, and so are all claims with one cause, which stands
    in place of the outcome. Speeds of short translations on one busy machine decide nothing.
    """
    facts = set()
    for verdict in verdicts:
        claim = verdict.claim
        if claim.measure != "bleu":
            continue
        if claim.cause:
            facts.add((verdict.direction, f"not decided: {claim.cause}", ""))
        else:
            facts.add((verdict.direction, verdict.kind, f"{claim.higher} above {claim.lower}"))
    return Counter((direction, outcome) for direction, outcome, _ in facts)


def read_claims(path: Path) -> tuple[Claim, ...]:
    """Read a file of claims.

    Raises:
        UsageError: It is missing, or anything in it is wrong.
    """
    return read_settings(Claims, str(path), locate=locate).section.claims


def judge(
    claim: Claim, direction: str, values: Mapping[str, float], test: Comparison | None, why: Mapping[str, str]
) -> Verdict:
    """Hold a claim against what was measured.

    Args:
        claim: The paper's.
        direction: The translation direction measured here.
        values: What was measured, by system.
        test: Of the lower system against the higher, where BLEU is compared and both have a seed in common.
        why: What is known of systems without a value: `FAILED`, say; others were not measured.
    """
    first, second = values.get(claim.higher), values.get(claim.lower)
    if first is None or second is None:
        gone = [name for name in (claim.higher, claim.lower) if name not in values]
        how = [f"{name} {why.get(name, 'not measured')}" for name in gone]
        kind = "a system failed" if FAILED in (why.get(name) for name in gone) else "not measured"
        return Verdict(claim, direction, None, None, ", ".join(how), kind)
    if claim.measure == "bleu" and max(first, second) < _NOTHING:
        outcome = f"neither has learned to translate (BLEU below {_NOTHING:g})"
    elif claim.measure == "bleu":
        outcome = _by_test(first - second if test is None else test.difference, test)
    else:
        outcome = _by_ratio(first, second)
    p_value = None if test is None or claim.measure != "bleu" else test.p_value
    return Verdict(claim, direction, (first, second), p_value, outcome, outcome)


def _by_test(difference: float, test: Comparison | None) -> str:
    if difference == 0:
        return "equal"
    way = "as in the paper" if difference > 0 else "the other way round"
    if test is None:
        return f"{way}, not tested"
    return way if test.p_value < SIGNIFICANT else f"{way}, not significant"


def _by_ratio(first: float, second: float) -> str:
    if abs(first - second) <= _SAME * max(first, second):
        return f"equal within {100 * _SAME:.0f} %"
    return "as in the paper" if first > second else "the other way round"
