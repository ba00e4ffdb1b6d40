from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deepwire.lab.finding import (
    Axis,
    BarChart,
    Column,
    Finding,
    HeatMap,
    LineChart,
    ModelSource,
    Series,
    Table,
    provenance,
)

sys.path.insert(0, str(Path(__file__).parent))
from small_runs import corpus, make_model, run, store, text  # noqa: F401 - fixtures


@pytest.fixture
def finding() -> Finding:
    """One of everything, with names that are markup if nobody takes care."""
    return Finding(
        analysis="example",
        title="An <example> & more",
        measured="Numbers made by hand.",
        tables=(
            Table(
                title="Speed",
                columns=(
                    Column(name="model"),
                    Column(name="speed", unit="sentences/s", digits=1),
                    Column(name="count"),
                ),
                rows=(("<script>alert(1)</script>", 12.345, 3), ("b", None, 40)),
            ),
        ),
        figures=(
            LineChart(
                name="curves",
                title="Loss over training",
                x=Axis(label="update"),
                y=Axis(label="loss", unit="nats/token"),
                series=(
                    Series(name="a", x=(1, 2, 3), y=(3.0, 2.0, 1.5)),
                    Series(name="b", x=(1, 2), y=(3.0, None), low=(2.5, None), high=(3.5, None)),
                ),
            ),
            BarChart(
                name="bars",
                title="Gates",
                x=Axis(label="layer"),
                y=Axis(label="openness"),
                categories=("1", "2"),
                series=(Series(name="input", y=(0.25, 0.5)), Series(name="forget", y=(0.75, 0.5))),
            ),
            HeatMap(
                name="matrix",
                title="Weights",
                row_axis=Axis(label="reader"),
                column_axis=Axis(label="source"),
                value=Axis(label="weight"),
                rows=("x1", "x2"),
                columns=("y0", "y1"),
                values=((1.0, None), (-0.75, 0.0625)),
            ),
        ),
        notes=("A note.",),
        provenance=provenance([ModelSource(name="runs/a", folder="runs/a/x", digest="0" * 32, update=7)]),
    )
