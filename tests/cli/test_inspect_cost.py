from __future__ import annotations

import json

import pytest

from deepwire.cli.main import main

# The shape of the model is what counts here, and small ones are counted sooner.
SMALL = ("demo", "model.encoder.layers=1", "model.decoder.layers=1", "--vocabulary-size", "500", "--cost")


def test_the_cost_of_a_transformer_is_about_six_operations_a_parameter_and_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["inspect", *SMALL, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    cost = record["cost"]
    assert cost["training_operations"] == pytest.approx(6 * record["parameters"], rel=0.1)
    assert cost["output_operations"] == 6 * 500 * record["model"]["d_model"]
    assert cost["training_bytes_moved"] > cost["training_bytes_kept"] > 0
    assert 0 < cost["step_operations"] < cost["encoding_operations"]


def test_the_cost_is_printed_when_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", *SMALL]) == 0
    assert "training, a target token: " in capsys.readouterr().out
    assert main(["inspect", *SMALL[:-1]]) == 0
    assert "target token" not in capsys.readouterr().out
