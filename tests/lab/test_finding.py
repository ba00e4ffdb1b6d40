from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deepwire.errors import DataError
from deepwire.lab.finding import (
    Axis,
    BarChart,
    Column,
    Finding,
    HeatMap,
    LineChart,
    Series,
    Table,
    from_json,
    provenance,
    to_json,
)
from deepwire.lab.pages import as_text, read_findings, save_json, table_text


def test_what_is_written_is_read_again(finding: Finding, tmp_path: Path) -> None:
    save_json([finding, finding], tmp_path / "f.json")
    assert read_findings(tmp_path / "f.json") == (finding, finding)


@given(
    rows=st.lists(
        st.tuples(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53))
    )
)
def test_every_number_comes_back_to_the_last_bit(rows: list[tuple[str, float, int]]) -> None:
    table = Table(title="t", columns=tuple(Column(name=name) for name in "abc"), rows=tuple(rows))
    found = Finding(analysis="x", title="t", measured="m", tables=(table,), provenance=provenance())
    assert from_json(to_json([found]), "f") == (found,)


def test_what_is_no_number_becomes_nothing_and_the_json_is_json() -> None:
    table = Table(title="t", columns=(Column(name="a"),), rows=((math.nan,), (math.inf,), (1.5,)))
    assert table.rows == ((None,), (None,), (1.5,))
    found = Finding(analysis="x", title="t", measured="m", tables=(table,), provenance=provenance())

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    json.loads(to_json([found]), parse_constant=refuse)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"format": 2, "findings": []}', '{"format":1,"findings":[{}]}']
)
def test_foreign_json_is_one_clear_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(DataError, match=r"f\.json: holds no findings") as caught:
        read_findings(tmp_path / "f.json")
    assert "--json" in caught.value.hint


def test_what_does_not_fit_together_is_refused(finding: Finding) -> None:
    axis = Axis(label="a")
    with pytest.raises(ValidationError, match="row 1 has 1 cells for 2 columns"):
        Table(title="t", columns=(Column(name="a"), Column(name="b")), rows=((1,),))
    with pytest.raises(ValidationError, match="2 x for 1 y"):
        LineChart(name="n", title="t", x=axis, y=axis, series=(Series(name="s", x=(1, 2), y=(1,)),))
    with pytest.raises(ValidationError, match="one value for each category"):
        BarChart(name="n", title="t", x=axis, y=axis, categories=("a",), series=(Series(name="s", y=(1, 2)),))
    with pytest.raises(ValidationError, match="not 1 x 2"):
        HeatMap(
            name="n", title="t", row_axis=axis, column_axis=axis, value=axis, rows=("r",), columns=("a", "b"),
            values=((1,),),
        )  # fmt: skip
    with pytest.raises(ValidationError, match="low and high"):
        Series(name="s", y=(1, 2), low=(0, 0))
    with pytest.raises(ValidationError, match="two figures have one name"):
        Finding.model_validate({**finding.model_dump(), "figures": [finding.figures[0], finding.figures[0]]})


def test_tables_of_figures_hold_their_numbers(finding: Finding) -> None:
    lines, bars, matrix = (figure.table() for figure in finding.figures)
    assert lines.rows == ((1, 3.0, 3.0), (2, 2.0, None), (3, 1.5, None))
    assert [column.head for column in lines.columns] == ["update", "a", "b"]
    assert lines.title == "Loss over training [nats/token]"
    assert bars.rows == (("1", 0.25, 0.75), ("2", 0.5, 0.5))
    # The table has what the drawing leaves blank.
    assert matrix.rows == (("x1", 1.0, None), ("x2", -0.75, 0.0625))
    assert finding.figures[2].drawn() == ((1.0, None), (-0.75, None))


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
