"""The finding of many directions: its tables as text, its bars, its notes and its page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from deepwire.evaluation.comparison import PairedTest
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.multilingual.direction_names import parse_group
from deepwire.evaluation.multilingual.direction_table import (
    DirectionsReport,
    DirectionTable,
)
from deepwire.lab.direction_scores import directions_finding
from deepwire.lab.report.finding import from_json, to_json
from deepwire.lab.report.pages import as_text, table_markdown

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation" / "multilingual"))
from translated_directions import translated  # noqa: F401 - a fixture

HOSTILE = "</title><script src='https://example.org/x.js'>runs/<b>"


@pytest.fixture
def report(translated) -> DirectionsReport:  # noqa: F811 - the fixture
    paired = PairedTest("bootstrap", samples=20)
    table = DirectionTable(LanguageMetrics().of, "en", [parse_group("de,zh")], paired)
    sizes = {"en-de": 900, "en-fr": 100, "de-en": 900, "en-zh": None, "de-fr": None}
    for place, (name, pairs) in enumerate(sizes.items()):
        zero = name == "de-fr"
        share = 0.25 if zero else None
        table.add(
            *translated(
                name, 2 + place, 4, zero_shot=zero, training_pairs=pairs, right_language=share,
                baseline_right_language=share, reference_right_language=share and 1.0,
            )
        )  # fmt: skip
    return table.report("runs/six", HOSTILE, "multi30k", ["a note & more"])


def test_the_tables_have_every_number_of_the_papers_table(report: DirectionsReport) -> None:
    lines = as_text([directions_finding(report)]).splitlines()
    assert lines[0] == f"runs/six against {HOSTILE} on multi30k"
    head = lines.index("Averages") + 1
    assert lines[head].split() == [
        "directions", "languages", "number", "BLEU", "baseline", "BLEU", "chrF2", "baseline", "chrF2",
        "difference", "win", "ratio", "[%]", "better,", "p", "<", "0.05", "worse,", "p", "<", "0.05",
    ]  # fmt: skip
    everything = next(line for line in lines if line.startswith("Out of en  ")).split()
    assert everything[3:5] == ["all", "3"]
    assert everything[-3] == "33.33"
    assert any(line.startswith("Out of en ") and "de, zh" in line for line in lines)
    rows = [line.split() for line in lines if line.startswith("en-")]
    assert [row[0] for row in rows] == ["en-de", "en-fr", "en-zh"]
    assert rows[0][1:3] == ["40", "900"]
    zero = next(line.split() for line in lines if line.startswith("de-fr"))
    assert zero[-3:] == ["25.0", "25.0", "100.0"]


def test_the_notes_say_what_the_tests_found_and_how_it_was_scored(report: DirectionsReport) -> None:
    notes = directions_finding(report).notes
    assert any(note.startswith("Out of en: better in 1 and worse in 2 of 3; with p < 0.05") for note in notes)
    assert any("Holm's correction" in note for note in notes)
    assert (
        "paired bootstrap (Koehn 2004), two-sided; 20 samples, seed 12345; p of the difference of BLEU"
        in notes
    )
    assert any(
        note.startswith("BLEU|") and "tok:13a" in note and note.endswith("(de, en, fr)") for note in notes
    )
    assert notes[-1] == "a note & more"


def test_without_a_baseline_there_is_nothing_to_win(translated) -> None:  # noqa: F811 - the fixture
    table = DirectionTable(LanguageMetrics().of)
    table.add(*translated("en-de"))
    finding = directions_finding(table.report("runs/six", None, "multi30k"))
    written = as_text([finding])
    for word in ("win ratio", "baseline", "difference", "better in", "right language"):
        assert word not in written
    assert [len(figure.series) for figure in finding.figures] == [1]


def test_json_holds_the_numbers_unrounded_beside_the_finding(report: DirectionsReport) -> None:
    finding = directions_finding(report)
    text = to_json([finding], more=report.to_json())
    record = json.loads(text)
    out = record["blocks"][1]
    assert out["averages"][0]["win_ratio"] == pytest.approx(100 / 3)
    assert out["averages"][0]["directions"] == ["en-de", "en-fr", "en-zh"]
    first = out["directions"][0]
    assert first["scores"][0]["score"] == report.blocks[1].rows[0].scores[0].value
    assert first["comparisons"][0]["p_value"] == pytest.approx(report.blocks[1].rows[0].p_value)
    assert record["blocks"][3]["directions"][0]["right_language"] == 0.25
    assert from_json(text, "table") == (finding,)


def test_markdown_has_the_same_tables(report: DirectionsReport) -> None:
    tables = directions_finding(report).tables
    lines = [line for table in tables for line in table_markdown(table).splitlines()]
    assert sum(line.startswith("| en-de |") for line in lines) == 1
    assert sum(line.startswith("| Out of en |") for line in lines) == 2
