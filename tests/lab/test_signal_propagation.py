from __future__ import annotations

from pathlib import Path

import pytest

from deepwire.api.model import load
from deepwire.lab.finding import Finding
from deepwire.lab.signals import analyse_signal


@pytest.fixture
def untrained(corpus: Path) -> list[str]:
    """Run file and overrides."""
    return [str(corpus / "small.yaml"), f"data.prepared={corpus / 'prepared'}"]


def curves(finding: Finding, name: str) -> dict[str, tuple[float | None, ...]]:
    chart = next(figure for figure in finding.figures if figure.name == name)
    return {series.name: series.y for series in chart.series}


def test_a_run_file_is_looked_at_before_training(untrained: list[str]) -> None:
    name, *changes = untrained
    finding = analyse_signal(name, changes, seeds=2, tokens=200)
    assert finding.title.endswith("untrained")
    assert finding.provenance.settings["seeds"] == "1 to 2"
    ends = {row[0]: row[1:] for row in finding.tables[0].rows}
    assert list(ends) == ["encoder", "decoder"]
    assert ends["decoder"][-1] is not None  # logits
    assert [row[:2] for row in finding.tables[2].rows] == [
        (1, "mixer"),
        (1, "cross"),
        (2, "mixer"),
        (2, "cross"),
    ]
    for name in ("stream", "output-gradients", "parameter-gradients"):
        for values in curves(finding, name).values():
            assert len(values) == 2
            assert all(value is not None and value > 0 for value in values)


def test_seeds_are_averaged_and_give_the_range(untrained: list[str]) -> None:
    name, *changes = untrained
    one, other = (
        analyse_signal(name, [*changes, f"seed={seed}"], seeds=1, tokens=200).figures[0] for seed in (1, 2)
    )
    both = analyse_signal(name, changes, seeds=2, tokens=200).figures[0]
    assert not one.series[0].low
    assert other.series[0].y != one.series[0].y
    low, high = both.series[0].low[0], both.series[0].high[0]
    assert low < high
    assert low == pytest.approx(one.series[0].y[0], rel=0.1)


def test_settings_change_what_is_measured(untrained: list[str]) -> None:
    name, *changes = untrained
    small, large = (
        analyse_signal(name, [*changes, f"model.initialization={kind}"], seeds=1, tokens=200).tables[0].rows
        for kind in ("lipschitz", "xavier")
    )
    assert large[0][1] > 1.5 * small[0][1]  # the part of the tokens
    assert small[0][2] == large[0][2]  # sinusoids


def test_a_trained_run_is_looked_at_as_it_is(run: str) -> None:
    finding = analyse_signal(run, tokens=200)
    assert [model.name for model in finding.provenance.models] == [run]
    again = load(run, "cpu").analyze("signal", tokens=200)
    assert again.tables == finding.tables
    untrained = analyse_signal(str(Path(run).parents[1] / "small.yaml"), seeds=1, tokens=200)
    assert untrained.tables != finding.tables
