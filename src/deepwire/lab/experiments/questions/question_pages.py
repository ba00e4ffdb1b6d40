"""The page of answers: Markdown that begins with the answers, and a picture for each as SVG beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepwire.errors import UsageError
from deepwire.io.output import write_output
from deepwire.lab.experiments.questions.answers import AnsweredQuestion, answer_questions
from deepwire.lab.experiments.questions.question_findings import (
    differences,
    learning_curves,
    question_finding,
    speeds_by_length,
)
from deepwire.lab.experiments.questions.question_plan import QuestionsPlan
from deepwire.lab.experiments.questions.question_words import (
    answer_of,
    claims_table,
    count_of_claims,
    unmeasured_claims,
)
from deepwire.lab.report.plots import svg
from deepwire.lab.report.tables_and_figures import BarChart, LineChart
from deepwire.lab.report.text_pages import as_markdown, table_markdown


def write_answers(plan: QuestionsPlan, results: Path, markdown: Path) -> list[AnsweredQuestion]:
    """Write the page and its pictures, which lie in a folder named like it.

    Args:
        plan: The questions.
        results: Where the results of the parts are.
        markdown: The page.

    Raises:
        UsageError: The plan of a part is wrong, matplotlib is missing, or a page is there and no result.
        DataError: A result is damaged.
        ResourceError: A file cannot be written.
    """
    questions = answer_questions(plan, results)
    pictures = {question.name: _pictures(question) for question in questions}
    begun = [each for each in questions if any(system.runs for system in each.systems.values())]
    if not begun and markdown.exists():
        raise UsageError(
            f"{results}: holds no result of this plan, so {markdown} stays as it is",
            "name the folder that holds them with --results, or another page with --markdown",
        )
    folder = markdown.with_suffix("")
    for charts in pictures.values():
        for chart in charts:
            folder.mkdir(parents=True, exist_ok=True)
            write_output(folder / f"{chart.name}.svg", f"{svg(chart)}\n")
    opening = [plan.about, count_of_claims(questions)]
    for question in questions:
        opening += _opening(question, pictures[question.name], folder.name)
    opening += [plan.appendix, "## The numbers"]
    findings = [question_finding(question) for question in begun]
    about = "\n\n".join(filter(None, opening))
    write_output(markdown, as_markdown(findings, plan.title, about, origins=False, level=3))
    return questions


def _pictures(question: AnsweredQuestion) -> list[BarChart | LineChart]:
    charts = (differences(question), learning_curves(question), speeds_by_length(question))
    return [chart for chart in charts if chart is not None]


def _opening(question: AnsweredQuestion, charts: Sequence[BarChart | LineChart], folder: str) -> list[str]:
    """The answer to a question, its pictures, and its claims."""
    speeds, claims = question.plan.speeds, claims_table(question)
    images = [f"![{chart.title}]({folder}/{chart.name}.svg)" for chart in charts]
    return [
        f"## {question.name}. {question.plan.title}",
        answer_of(question),
        *images,
        *(["Speed by length: not yet measured."] if speeds is not None and not speeds.exists() else []),
        "" if claims is None else table_markdown(claims),
        unmeasured_claims(question),
    ]
