"""`deepwire train --log-command`: another program hears of every record."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from toy_run import run_file, write_corpus

from deepwire.cli.main import main
from deepwire.errors import UsageError
from deepwire.training.log_command import LogCommand


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_corpus(tmp_path, {"train": 60, "valid": 5})
    (tmp_path / "toy.yaml").write_text(run_file(max_updates=6, log_every=2, validation={"every": 3}))
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
