"""A plan of questions: what is asked, of which systems, and in which order it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from deepwire.config.counts import Count
from deepwire.config.section import Section
from deepwire.config.settings_reader import absolute, read_settings
from deepwire.errors import UsageError
from deepwire.lab.experiments.results.results_plan import Name
from deepwire.runfile import locate

QuestionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,30}$")]
Goal = Literal["equal", "plateau"]
GOALS: tuple[Goal, ...] = ("equal", "plateau")
"""How far a run goes: to the update at which all are compared, or on until it stands still."""


class PartPlan(Section):
    """A plan of ``deepwire results`` whose systems are asked about, and where its runs are compared."""

    plan: Path = Field(description="a plan of deepwire results, seen from this file")
    settings: tuple[str, ...] = Field(default=(), description="changes to it, as on the command line")
    equal_updates: Count = Field(
        ge=1, description="the update at which all its systems are compared; training.max_updates lies above"
    )
    plateau: bool = Field(
        default=True,
        description="runs can go on until they stand still; false: training.max_updates is the same",
    )
    average: int = Field(
        default=5, ge=1, description="checkpoints whose mean translates, the last ones up to that update"
    )


class ClaimPlan(Section):
    """What a paper says about two systems."""

    says: str = Field(min_length=1, description="in plain words")
    paper: str = Field(description="authors, year and table")
    better: str = Field(description="the system that the paper has above the other")
    than: str = Field(description="the other one")


class AnswersPlan(Section):
    """The answer in plain words, by what is found of the first claim of a question."""

    holds: str = Field(description="as the paper says")
    reversed: str = Field(description="the other way round")
    open: str = Field(description="no clear difference")


class QuestionPlan(Section):
    """One question."""

    title: str = Field(description="the question in plain words")
    about: str = Field(default="", description="what is compared, and why so")
    part: Name = Field(description="the part whose systems it is about")
    systems: tuple[str, ...] = Field(min_length=1, description="systems, as the part calls them")
    claims: tuple[ClaimPlan, ...] = Field(
        min_length=1, description="the papers' claims that it decides; the first one answers it"
    )
    answers: AnswersPlan = Field(description="the answer in plain words")
    speeds: Path | None = Field(
        default=None, description="speeds by length that benchmarks/decoding_length.py wrote (.json)"
    )


class QueueEntry(Section):
    """Some runs of a question."""

    question: QuestionName = Field(description="which one")
    systems: tuple[str, ...] = Field(default=(), description="only these of its systems; default: all")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(1,), min_length=1, description="with these seeds"
    )
    until: Goal = Field(default="equal", description="to the common update, or on to the plateau")


class QuestionsPlan(Section):
    """What a page of answers is made of."""

    title: str = Field(default="Results", description="title of the page")
    about: str = Field(default="", description="a paragraph below the title")
    appendix: str = Field(default="", description="a paragraph below the answers, before the numbers")
    text: Path | None = Field(
        default=None, description="folder of the text; {text} in any setting of a part stands for it"
    )
    parts: dict[Name, PartPlan] = Field(min_length=1, description="plans whose systems are asked about")
    questions: dict[QuestionName, QuestionPlan] = Field(min_length=1, description="the questions")
    queue: tuple[QueueEntry, ...] = Field(
        min_length=1, description="what is trained, in this order; trials of settings come before"
    )
    samples: int = Field(default=1000, ge=100, description="resamples of the significance tests")

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        for name, question in self.questions.items():
            if question.part not in self.parts:
                raise ValueError(f"questions.{name}.part: {question.part!r} is no part of this plan")
            pairs = [{claim.better, claim.than} for claim in question.claims]
            for number, (claim, pair) in enumerate(zip(question.claims, pairs, strict=True)):
                if len(pair) == 1:
                    raise ValueError(f"questions.{name}.claims: {claim.than!r} is compared with itself")
                if pair in pairs[:number]:
                    raise ValueError(
                        f"questions.{name}.claims: {claim.better!r} and {claim.than!r} are compared twice; "
                        "a pair counts once"
                    )
                for system in (claim.better, claim.than):
                    if system not in question.systems:
                        raise ValueError(f"questions.{name}.claims: {system!r} is no system of {name}")
        for entry in self.queue:
            if entry.question not in self.questions:
                raise ValueError(f"queue: {entry.question!r} is no question of this plan")
            part = self.questions[entry.question].part
            if entry.until == "plateau" and not self.parts[part].plateau:
                raise ValueError(f"queue: {entry.question} until plateau, but parts.{part}.plateau is false")
            for system in entry.systems:
                if system not in self.questions[entry.question].systems:
                    raise ValueError(f"queue: {system!r} is no system of {entry.question}")
        return self


def read_questions(path: Path, overrides: tuple[str, ...] = ()) -> QuestionsPlan:
    """Read a plan of questions; its paths are absolute then.

    Raises:
        UsageError: It is missing, or anything in it is wrong.
    """
    if path.suffix not in {".yaml", ".yml"}:
        raise UsageError(f"{path}: a plan is a .yaml file", "see examples/questions/questions.yaml")
    settings = read_settings(QuestionsPlan, str(path), overrides, locate=locate)
    home, plan = settings.document.path.parent, settings.section
    parts = {
        name: part.model_copy(update={"plan": absolute(part.plan, home)}) for name, part in plan.parts.items()
    }
    questions = {
        name: question.model_copy(update={"speeds": absolute(question.speeds, home)})
        if question.speeds is not None
        else question
        for name, question in plan.questions.items()
    }
    return plan.model_copy(update={"parts": parts, "questions": questions})
