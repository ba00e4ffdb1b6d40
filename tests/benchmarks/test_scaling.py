"""The cost model: what it counts is what the built model has, and its plans keep to the device."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import scaling

from deepwire.model.cost import meta_model, parameter_bytes
from deepwire.runfile import load_run_file

GPU = scaling.GPUS["h100"]


@pytest.fixture(scope="module")
def counts() -> scaling.Counted:
    return scaling.counted(scaling.Subject("small", "papers/neutron-base", ("model.encoder.layers=5",)), 9)


def test_layers_add_up_to_the_whole_model(counts: scaling.Counted) -> None:
    config = load_run_file("papers/neutron-base", ["model.encoder.layers=5"]).config.model
    model = meta_model(config, scaling.VOCABULARY, scaling.VOCABULARY)
    assert counts.parameters * 4 == parameter_bytes(model)
    whole = scaling.cost(config, 5, config.decoder.layers, 9)
    assert counts.layers == pytest.approx(whole.layers)
    assert counts.output == pytest.approx(whole.output)
    assert counts.kept == pytest.approx(whole.kept, rel=1e-3)
    assert counts.entering + counts.largest < counts.kept / 3


@pytest.mark.parametrize("gpus", [1, 8, 64])
def test_plans_fit_and_share_the_work(counts: scaling.Counted, gpus: int) -> None:
    found = scaling.plans(counts, GPU, gpus, 0.5, 400_000)
    assert found
    for plan in found:
        assert plan.memory <= GPU.memory
        assert plan.pass_tokens * plan.passes * gpus >= 400_000
        assert plan.seconds >= plan.compute
        assert (plan.sent == 0) == (gpus == 1)
    whole, sharded = (next(one for one in found if one.sharding == kind) for kind in ("none", "full"))
    assert gpus == 1 or sharded.static < whole.static


def test_what_does_not_fit_is_no_plan(counts: scaling.Counted) -> None:
    huge = replace(counts, parameters=100 * 10**9)
    assert {one.sharding for one in scaling.plans(huge, GPU, 64, 0.5, 400_000)} <= {"full"}
    assert scaling.plans(huge, GPU, 8, 0.5, 400_000) == []


def test_the_tables_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(scaling, "SUBJECTS", scaling.SUBJECTS[:1])
    monkeypatch.setattr(sys, "argv", ["scaling.py", "--length", "5", "--gpus", "8"])
    scaling.main()
    lines = capsys.readouterr().out.split("\n")
    assert sum(line.startswith("| 6+6 big | 8 |") for line in lines) >= 3
