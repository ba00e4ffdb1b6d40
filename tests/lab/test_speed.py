"""Speed and memory: the work that is measured is the work that is said, and every axis comes out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deepwire.cli.main import main
from deepwire.decoding.search import generate
from deepwire.lab import speed
from deepwire.lab.speed import MeasuredArchitecture, Workload, sweep
from deepwire.model.config import ModelConfig

CPU = torch.device("cpu")
TINY = MeasuredArchitecture(
    "tiny",
    ModelConfig.model_validate(
        {
            "d_model": 16,
            "heads": 2,
            "feed_forward": 32,
            "encoder": {"layers": 1, "connection": "depth_lstm"},
            "decoder": {"layers": 1, "mixer": "average_attention"},
        }
    ),
    40,
    40,
)


def quiet(_text: str) -> None: ...


@pytest.mark.parametrize("beam", [1, 3])
def test_every_translation_has_exactly_the_length_asked_for(monkeypatch, beam: int) -> None:
    found = []

    def watched(*arguments):
        found.extend(generate(*arguments))
        return found

    monkeypatch.setattr(speed, "generate", watched)
    base = Workload(batch=3, beam=beam, length=7)
    sweep([TINY], "decoding", "length", [5, 9], base, rounds=1, device=CPU, tell=quiet)
    lengths = [len(hypotheses[0].ids) for hypotheses in found]
    assert lengths == [5] * 9 + [9] * 9  # to warm up, for the memory, and one round


@pytest.mark.slow
def test_command_on_a_run_file_and_a_run(run: str, corpus: Path, analyze) -> None:
    file = str(corpus / "small.yaml")
    axes = ["--batch", "2", "--beam", "1,2", "--length", "3", "--depth", "2"]
    options = ["--base", "2,2,4", "--rounds", "1", "--device", "cpu"]
    found = analyze("speed", run, file, *axes, *options)
    titles = {table["title"]: table["rows"] for table in found["tables"]}
    assert list(titles) == [
        "Training against batch",
        "Training against length",
        "Training against depth",
        "Decoding against batch",
        "Decoding against beam",
        "Decoding against length",
        "Decoding against depth",
    ]
    assert [row[:2] for row in titles["Decoding against beam"]] == [
        [run, 1],
        [file, 1],
        [run, 2],
        [file, 2],
    ]
    assert len(found["provenance"]["models"]) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "0"], "is no list of numbers from 1"),
        (["--base", "1,2"], "--base: must be batch, beam and length"),
        (["--mode", "sleeping"], "is not one of"),
        (["--batch", "", "--beam", "", "--length", "", "--depth", ""], "no axis to measure"),
    ],
)
def test_wrong_options_are_one_line(capsys, options, message) -> None:
    assert main(["analyze", "speed", "multi30k/aan-tiny", "--device", "cpu", *options]) == 2
    assert message in capsys.readouterr().err
