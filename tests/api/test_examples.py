"""The examples in ``examples/python`` do what they say, on tiny text."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from reversed_words import SETTINGS

import deepwire

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def run(name: str, *arguments: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_train_and_translate(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = (corpus / "train.src", corpus / "train.trg")
    options = ("--folder", tmp_path / "mine", "--updates", "2")
    run("train_and_translate.py", *texts, *options, monkeypatch=monkeypatch)
    shown = capsys.readouterr().out
    assert shown.count("  -> ") == 5
    losses = [float(word) for word in shown.partition("validation losses:")[2].splitlines()[0].split()]
    assert len(losses) == 2
    worse = [number for number in range(2) if losses[number] > min(losses[: number + 1])]
    assert shown.count("learning rate is now") == len(worse)
    assert deepwire.Run(tmp_path / "mine" / "run").best is not None


def test_own_training_loop(
    data: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps({**SETTINGS, "data": {**SETTINGS["data"], **data}}))
    run("own_training_loop.py", file, tmp_path / "model", "--epochs", "3", monkeypatch=monkeypatch)
    shown = capsys.readouterr().out
    losses = [float(line.split()[-1]) for line in shown.splitlines() if line.startswith("epoch")]
    assert len(losses) == 3
    assert losses[2] < losses[0]
    assert "  -> " in shown
