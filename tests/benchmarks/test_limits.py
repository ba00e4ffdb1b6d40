"""The limits of a machine, on a machine whose rates are known."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import limits
import machine
import pytest

from deepwire.model.cost import TrainingCost
from deepwire.runfile import load_run_file

RATES = {
    "gflops": {
        "1x1x1": {"fp32 highest": 100.0, "fp32 medium": 50.0, "bf16": 10.0},
        "2x2x2": {"fp32 highest": 80.0, "fp32 medium": 200.0, "bf16": 400.0},
    },
    "copy_gb_per_second": 20.0,
    "read_gb_per_second": {"1": 50.0, "16": 30.0, "256": 10.0},
}
SMALL = ("demo", "model.encoder.layers=1", "model.decoder.layers=1", "--vocabulary-size", "500")


@pytest.fixture
def found() -> limits.Machine:
    return limits.Machine.of(RATES)


@pytest.fixture
def report(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    """The text that the script prints, and its figures."""

    def run(*arguments: str) -> tuple[str, dict[str, object]]:
        rates, figures = tmp_path / "machine.json", tmp_path / "figures.json"
        rates.write_text(json.dumps(RATES))
        monkeypatch.setattr(
            sys, "argv", ["limits.py", *arguments, "--machine", str(rates), "--json", str(figures)]
        )
        limits.main()
        return capsys.readouterr().out, json.loads(figures.read_text())

    return run


def test_the_fastest_product_of_any_shape_counts(found: limits.Machine) -> None:
    assert found.products == {"fp32 highest": 100e9, "fp32 medium": 200e9, "bf16": 400e9}
    assert found.fastest == "bf16"


def test_the_slower_of_products_and_memory_is_the_limit(found: limits.Machine) -> None:
    cost = TrainingCost(layers=30e6, output=10e6, moved=9e6, kept=1e6, weights=4 * 10**6)
    limit = limits.training_limit(cost, found, update_tokens=4000)
    assert limit.products == pytest.approx(400e9 / 40e6)
    assert limit.memory == pytest.approx(20e9 / (2e6 + 10 * 4e6 / 4000))
    assert limit.tokens_per_second == min(limit.products, limit.memory)


def test_costs_between_whole_lengths_are_between_theirs() -> None:
    config = load_run_file("demo", SMALL[1:3]).config.model
    model = limits.meta_model(config, 100, 100)
    low, middle, high = (limits.operations_per_token(model, length, 4.0) for length in (5.0, 5.25, 6.0))
    assert middle == pytest.approx(low + 0.25 * (high - low))
    assert low < high
    # The ratio of the lengths is what counts, not the rounding of the target length.
    assert limits.operations_per_token(model, 5.5, 4.4) == pytest.approx(low)


def test_a_run_file_gets_its_limits_and_a_measured_speed_its_share(report) -> None:
    text, figures = report(*SMALL, "--measured", "1000", "--batch", "1", "8")
    limit = figures["training"]["limit"]
    best = min(limit["products"], limit["memory"])
    assert f"{1000 / best:.0%} of the limit" in text
    assert [each["batch"] for each in figures["decoding"]] == [1, 8]
    one, many = figures["decoding"]
    assert many["sentences_per_second"] > one["sentences_per_second"]
    assert one["tokens_per_second"] == pytest.approx(25 * one["sentences_per_second"])
    assert many["cost"]["operations"] == 8 * one["cost"]["operations"]


def test_the_machine_is_measured_in_every_format(monkeypatch) -> None:
    monkeypatch.setattr(machine, "SHAPES", [(64, 8, 8)])
    monkeypatch.setattr(machine, "READ_MIB", [1])
    monkeypatch.setattr(machine, "COPIED_BYTES", 2**20)
    found = limits.Machine.of(machine.measured())
    assert set(found.products) == set(machine.FORMATS)
    assert found.copy > 0
    assert found.read(10) > 0
