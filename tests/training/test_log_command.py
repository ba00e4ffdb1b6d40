"""`deepwire train --log-command`: another program hears of every record."""

from __future__ import annotations

import json
import random
import shlex
import sys
from pathlib import Path

import pytest

from deepwire.cli.main import main
from deepwire.errors import UsageError
from deepwire.training.log_command import LogCommand

RUN_FILE = """
data: {source: src, target: trg, train: train, valid: valid, vocabulary: {type: words}}
model: {d_model: 16, heads: 2, feed_forward: 32, encoder: {layers: 1}, decoder: {layers: 1}}
training:
  max_updates: 6
  batch_tokens: 100
  log_every: 2
  schedule: {peak: 0.01, warmup: 5}
  validation: {every: 3}
  device: cpu
  precision: fp32
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    generator = random.Random(1)
    for name, count in (("train", 60), ("valid", 5)):
        lines = [generator.choices("abcdefgh", k=generator.randint(2, 8)) for _ in range(count)]
        for side in ("src", "trg"):
            (tmp_path / f"{name}.{side}").write_text("".join(" ".join(words) + "\n" for words in lines))
    (tmp_path / "toy.yaml").write_text(RUN_FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def test_every_record_is_told_once(toy: Path) -> None:
    copy = program("import sys; open('told', 'a').write(sys.stdin.read())")
    assert main(["train", "toy.yaml", "--log-command", copy, "-q"]) == 0
    told = [json.loads(line) for line in (toy / "told").read_text().splitlines()]
    recorded = [json.loads(line) for line in (toy / "runs/toy/metrics.jsonl").read_text().splitlines()]
    assert told[0]["kind"] == "begin"
    assert told[0]["settings"]["model"]["d_model"] == 16
    assert told[1:-1] == recorded
    assert told[-1] == {
        "kind": "end",
        "update": 6,
        "reason": "training.max_updates=6",
        "finished": True,
    }
    (toy / "told").unlink()
    assert main(["train", "toy.yaml", "training.max_updates=8", "--log-command", copy, "-q"]) == 0
    again = [json.loads(line) for line in (toy / "told").read_text().splitlines()]
    assert again[0]["update"] == 6
    assert {record["update"] for record in again[1:]} <= {7, 8}


def test_a_program_that_ends_does_not_stop_training(toy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toy.yaml", "--log-command", program("raise SystemExit(3)"), "-q"]) == 0
    assert (toy / "runs/toy/DONE").exists()
    assert "ended with 3; all records are in metrics.jsonl" in capfd.readouterr().err


def test_a_program_that_does_not_exist_is_refused(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toy.yaml", "--log-command", "no-such-program x", "-q"]) == 2
    assert "No such file or directory: 'no-such-program'" in capsys.readouterr().err
    assert not (toy / "runs").exists()


@pytest.mark.parametrize("command", ["", "'open"])
def test_a_command_that_is_none_is_refused(command: str) -> None:
    with pytest.raises(UsageError, match="--log-command"):
        LogCommand(command)
