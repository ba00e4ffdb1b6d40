from __future__ import annotations

import json
import math

import pytest

from deepwire.lab.finding import (
    Column,
    Finding,
    Table,
    provenance,
    to_json,
)
from deepwire.lab.report import as_text, table_text


def test_what_is_no_number_becomes_nothing_and_the_json_is_json() -> None:
    table = Table(title="t", columns=(Column(name="a"),), rows=((math.nan,), (math.inf,), (1.5,)))
    assert table.rows == ((None,), (None,), (1.5,))
    found = Finding(analysis="x", title="t", measured="m", tables=(table,), provenance=provenance())

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    json.loads(to_json([found]), parse_constant=refuse)


def test_tables_of_figures_hold_their_numbers(finding: Finding) -> None:
    lines, bars, matrix = (figure.table() for figure in finding.figures)
    assert lines.rows == ((1, 3.0, 3.0), (2, 2.0, None), (3, 1.5, None))
    assert [column.head for column in lines.columns] == ["update", "a", "b"]
    assert lines.title == "Loss over training [nats/token]"
    assert bars.rows == (("1", 0.25, 0.75), ("2", 0.5, 0.5))
    assert matrix.rows == (("x1", 1.0, None), ("x2", -0.75, 0.0625))


def test_text_is_aligned_and_complete(finding: Finding) -> None:
    assert table_text(finding.tables[0]).splitlines() == [
        "Speed",
        "model                      speed [sentences/s]  count",
        "-------------------------  -------------------  -----",
        "<script>alert(1)</script>                 12.3      3",
        "b                                                  40",
    ]
    text = as_text([finding])
    for part in (
        "An <example> & more",
        "Numbers made by hand.",
        "A note.",
        "runs/a, update 7",
        "Gates",
        "-0.750",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("cell", "digits", "shown"),
    [
        (1234567, None, "1,234,567"),
        (1234567.891, 1, "1,234,567.9"),
        (-0.0001, 2, "0.00"),
        (1234567.891, None, "1,234,568"),
        (1234.5678, None, "1,235"),
        (0.00012345, None, "0.0001234"),
        (1.5e20, None, "1.5e+20"),
        ("1234567", None, "1234567"),
        (None, 2, ""),
    ],
)
def test_numbers_of_people_have_thousands_set_apart(
    cell: str | int | float | None, digits: int | None, shown: str
) -> None:
    assert Column(name="n", digits=digits).show(cell) == shown
