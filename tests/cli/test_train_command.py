"""``deepwire train`` and ``deepwire average`` as people call them, on a toy corpus."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_run import run_file, write_corpus

from deepwire.cli.main import main
from deepwire.distributed.process_group import ProcessGroup
from deepwire.training import run as runs

RUN_FILE = run_file(
    max_updates=20,
    log_every=5,
    schedule={"peak": 0.01, "warmup": 5},
    validation={"every": 10, "bleu": True, "bleu_every": 20},
    checkpoint={"keep_last": 3},
)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_corpus(tmp_path, {"train": 200, "valid": 10})
    (tmp_path / "toy.yaml").write_text(RUN_FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_run_file_is_read_once(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens to it while the command runs is nothing to it; nor need it be a file that stays."""
    before = ProcessGroup.run_on_main_first

    def overwritten(self: ProcessGroup, work: Callable[[], object]) -> object:
        found = before(self, work)
        (toy / "toy.yaml").write_text("data: gone")
        return found

    monkeypatch.setattr(ProcessGroup, "run_on_main_first", overwritten)
    monkeypatch.setattr(runs, "processes_wanted", lambda *_: (toy / "toy.yaml").write_text("gone") and 1)
    assert main(["train", "toy.yaml", "-q", "training.max_updates=1"]) == 0
    assert (toy / "runs" / "toy" / "config.yaml").read_text() == RUN_FILE


def test_train_translate_and_continue(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toy.yaml"]) == 0
    shown = capsys.readouterr()
    assert "best checkpoint: runs/toy/checkpoints/update-0000" in shown.out
    assert "next: deepwire translate runs/toy" in shown.out
    assert "u 20 valid loss" in shown.err
    assert " bleu " in shown.err
    run = toy / "runs" / "toy"
    assert (run / "config.yaml").read_text() == RUN_FILE
    assert len((run / "valid" / "update-000020.txt").read_text().splitlines()) == 10

    assert main(["train", "toy.yaml", "run=runs/toy"]) == 0
    shown = capsys.readouterr()
    assert "nothing to do: run finished at update 20 (training.max_updates=20)" in shown.out
    assert "begin anew: deepwire train toy.yaml run=runs/toy --fresh\n" in shown.out
    assert shown.err == ""

    assert main(["train", "toy.yaml", "training.max_updates=30", "-q"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")
    assert "continued from update-000020" in (run / "log.txt").read_text()

    assert main(["average", "runs/toy", "--last", "2", "--output", "mean"]) == 0
    assert capsys.readouterr().out == "mean\n"
    record = json.loads((toy / "mean" / "config.json").read_text())
    assert record["metadata"]["average_of"] == ["update-000020", "update-000030"]
    assert record["metadata"]["decoding"]["beam"] == 4
    for model in ("runs/toy", "runs/toy@last", "runs/toy@avg2", "mean"):
        assert main(["translate", model, "-i", "valid.src", "-o", "out.txt"]) == 0, capsys.readouterr().err
        assert len((toy / "out.txt").read_text().splitlines()) == 10


def test_settings_that_would_make_another_run_are_refused(
    toy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["training.max_updates=2", "training.validation.bleu=false"]
    assert main(["train", "toy.yaml", *short]) == 0
    assert main(["train", "toy.yaml", *short, "model.feed_forward=16", "seed=5"]) == 2
    error = capsys.readouterr().err
    assert "model.feed_forward: 32 -> 16; seed: 3 -> 5" in error
    assert "Traceback" not in error
    assert main(["train", "toy.yaml", *short, "seed=5", "--fresh"]) == 0
    assert (toy / "runs" / "toy.1" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "toy.yaml", "training.lerning_rate=1"], 2, "lerning_rate"),
        (["train", "toy.yaml", "training.max_updates=-5"], 2, "max_updates"),
        (
            ["train", "toy.yaml", "model.languages.norm=true"],
            2,
            "command line: model.languages: this is a run",
        ),
        (["train", "nothing.yaml"], 2, "nothing.yaml"),
        (["train", "toy.yaml", "data.train=nothing"], 3, "nothing"),
        (["average", "runs/none"], 4, "no such run"),
        (["average", "runs/a", "runs/b", "-o", "x"], 4, "no such model"),
    ],
)
def test_mistakes_are_one_line(toy: Path, refused, arguments: list[str], code: int, message: str) -> None:
    refused(code, message, *arguments)
    assert not (toy / "runs").exists()


def test_an_average_does_not_overwrite(toy: Path, capsys: pytest.CaptureFixture[str], refused) -> None:
    changes = ["training.max_updates=2", "training.validation.bleu=false", "model.encoder.connection=b2t"]
    assert main(["train", "toy.yaml", *changes]) == 0
    said = capsys.readouterr().err
    assert "warning: training.max_updates=2 ends the run within the warm-up" in said
    assert "warning: model.initialization is" in said
    refused(2, "exists already", "average", "runs/toy", "--last", "1", "-o", "runs")
    refused(4, "has 1 checkpoint,", "average", "runs/toy")
