"""Findings as text, JSON, figures and pages."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from deepwire.errors import UsageError
from deepwire.lab import report
from deepwire.lab.finding import (
    BarChart,
    Column,
    Figure,
    Finding,
    HeatMap,
    LineChart,
    ModelSource,
    Series,
    Table,
    provenance,
    to_json,
)
from deepwire.lab.report import as_text, save_html, save_plots, table_text

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


@pytest.fixture
def finding() -> Finding:
    """One of everything, with names that are markup if nobody takes care."""
    speeds = [("<script>alert(1)</script>", 12.345, 3), ("b", math.nan, 40)]
    return Finding(
        analysis="example",
        title="An <example> & more",
        measured="Numbers made by hand.",
        tables=[Table(title="Speed", columns=["model", "speed [sentences/s] .1", "count"], rows=speeds)],
        figures=[
            LineChart(
                name="curves",
                title="Loss over training",
                x="update",
                y="loss [nats/token]",
                series=[
                    Series(name="a", x=(1, 2, 3), y=(3.0, 2.0, 1.5)),
                    Series(name="b", x=(1, 2), y=(3.0, None), low=(2.5, None), high=(3.5, None)),
                ],
            ),
            BarChart(
                name="bars",
                title="Gates",
                x="layer",
                y="openness",
                categories=("1", "2"),
                series=[Series(name="input", y=(0.25, 0.5)), Series(name="forget", y=(0.75, 0.5))],
            ),
            HeatMap(
                name="matrix",
                title="Weights",
                row_axis="reader",
                column_axis="source",
                value="weight",
                rows=("x1", "x2"),
                columns=("y0", "y1"),
                values=((1.0, None), (-0.75, 0.0625)),
            ),
        ],
        notes=("A note.",),
        provenance=provenance([ModelSource(name="runs/a", folder="runs/a/x", digest="0" * 32, update=7)]),
    )


def test_json_has_every_number_and_nothing_else(finding: Finding) -> None:
    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    (read,) = json.loads(to_json([finding]), parse_constant=refuse)["findings"]
    assert read["tables"][0]["rows"] == [["<script>alert(1)</script>", 12.345, 3], ["b", None, 40]]
    assert read["figures"][2]["values"] == [[1.0, None], [-0.75, 0.0625]]
    assert [figure["kind"] for figure in read["figures"]] == ["lines", "bars", "heat_map"]


def test_tables_of_figures_hold_their_numbers(finding: Finding) -> None:
    lines, bars, matrix = (figure.table() for figure in finding.figures)
    assert lines.rows == ((1, 3.0, 3.0), (2, 2.0, None), (3, 1.5, None))
    assert [column.head for column in lines.columns] == ["update", "a", "b"]
    assert lines.title == "Loss over training: loss [nats/token]"
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
    for part in (finding.title, finding.measured, "A note.", "runs/a, update 7", "Gates", "-0.750"):
        assert part in text


@pytest.mark.parametrize(
    ("cell", "digits", "shown"),
    [
        (1234567, None, "1,234,567"),
        (-0.0001, 2, "0.00"),
        (1234567.891, None, "1,234,568"),
        (0.00012345, None, "0.0001234"),
        ("1234567", None, "1234567"),
        (None, 2, ""),
    ],
)
def test_numbers_of_people_have_thousands_set_apart(
    cell: str | int | float | None, digits: int | None, shown: str
) -> None:
    assert Column(name="n", digits=digits).show(cell) == shown


@needs_matplotlib
def test_a_drawing_says_what_it_shows_and_is_the_same_every_time(finding: Finding) -> None:
    for figure in finding.figures:
        drawing = report.render(figure, "svg")
        assert drawing == report.render(figure, "svg")
        parts = [part for part in ElementTree.fromstring(drawing).iter() if part.tag.endswith("}text")]
        text = " ".join("".join(part.itertext()) for part in parts)
        axes = [figure.row_axis, figure.column_axis] if isinstance(figure, HeatMap) else [figure.x, figure.y]
        assert all(words in text for words in (figure.title, *axes))
    assert "−0.75" in text  # of the heat map


MANY = [Series(name=f"layer {n}", x=(0, 1, 2), y=(n + 1, None, 1e-9)) for n in range(60)]
FIELDS = {"row_axis": "r", "column_axis": "c", "title": "map"}


@needs_matplotlib
@pytest.mark.parametrize(
    "figure",
    [
        LineChart(name="sixty", title="sixty", x="x", y="y", y_log=True, series=MANY, ordered=True),
        LineChart(name="nothing", title="-", x="x", y="y", series=[Series(name="a", x=[0], y=[None])]),
        HeatMap(name="blank", value="v", rows=["r"], columns=["c"], values=[[None]], **FIELDS),
        HeatMap(name="flat", value="v", rows=["r"], columns=["c", "d"], values=[[0.0, 0.0]], **FIELDS),
    ],
    ids=lambda figure: figure.name,
)
@pytest.mark.filterwarnings("error")
def test_odd_figures_are_drawn(figure: Figure) -> None:
    assert report.render(figure, "png").startswith(b"\x89PNG")


@needs_matplotlib
def test_ticks_of_log_axes_are_plain_numbers() -> None:
    lines = [Series(name="a", x=(10, 20, 80), y=(0.6, 3.0, 6.0))]
    drawing = report.render(
        LineChart(name="n", title="t", x="x", y="y", x_log=True, y_log=True, series=lines), "svg"
    )
    parts = [part for part in ElementTree.fromstring(drawing).iter() if part.tag.endswith("}text")]
    assert {"1", "2", "5", "10", "20", "50"} <= {"".join(part.itertext()).strip() for part in parts}


@needs_matplotlib
def test_plots_are_written_as_png_svg_and_pdf(finding: Finding, tmp_path: Path) -> None:
    written = save_plots([finding], tmp_path / "new" / "plots")
    assert sorted(path.name for path in written) == sorted(
        f"example-{name}.{form}" for name in ("curves", "bars", "matrix") for form in ("svg", "png", "pdf")
    )
    assert all(path.stat().st_size > 1000 for path in written)
    bars = finding.model_copy(update={"figures": finding.figures[1:2]})
    names = {path.name for path in save_plots([bars, bars], tmp_path / "two")}
    assert {"example-1-bars.png", "example-2-bars.png"} <= names
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        save_plots([finding], tmp_path / "file")


@needs_matplotlib
def test_a_page_needs_nothing_else_and_obeys_no_markup(finding: Finding, tmp_path: Path) -> None:
    save_html([finding, finding], tmp_path / "page.html", "Two")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<img ") == page.count("<figure>") == 6
    # A table for each figure, besides those of the finding and its origin.
    assert page.count("<table>") == 2 * (1 + 3 + 1)
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(link.startswith(("#f", "data:image/svg+xml;base64,")) for link in links)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_without_matplotlib_there_is_one_clear_error(
    finding: Finding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        report.render(finding.figures[0], "png")
    assert "pip install 'deepwire[analysis]'" in caught.value.hint
    save_html([finding], tmp_path / "page.html", "t", pictures=False)
    assert "<details open>" in (tmp_path / "page.html").read_text()
