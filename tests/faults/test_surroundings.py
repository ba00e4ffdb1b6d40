"""Odd surroundings: places that cannot be written, clocks, no home, no locale, two trainers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from one_process import RUN_FILE, Trainer, same_as_straight

import deepwire

SHORT = ("training.max_updates=2", "training.validation.every=2")


# Nobody may make folders there, not even the superuser, for whom permissions do not count.
@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a system file system of Linux")
@pytest.mark.parametrize("setting", ["run", "data.prepared"])
def test_a_place_that_cannot_be_written(trainer: Trainer, setting: str) -> None:
    assert trainer.train("elsewhere", *SHORT, f"{setting}=/sys/kernel/deepwire") in (2, 6)
    assert trainer.text().count("error: ") == 1
    assert "/sys/kernel/deepwire" in trainer.text()
    assert "hint: " in trainer.text()
    assert "Traceback" not in trainer.text()


def test_a_clock_that_runs_backwards_changes_nothing(trainer: Trainer) -> None:
    def backwards() -> None:
        now = [time.time()]

        def earlier() -> float:
            now[0] -= 3600
            return now[0]

        time.time = earlier

    assert trainer.train("clock", "training.max_updates=20", before=backwards) == 0, trainer.text()
    assert trainer.train("clock", before=backwards) == 0, trainer.text()
    assert same_as_straight(trainer, "clock")


def test_without_home_and_locale(tmp_path: Path, trainer: Trainer) -> None:
    (tmp_path / "run.yaml").write_text(RUN_FILE)
    for side in ("src", "trg"):
        for name in ("train", "valid"):
            lines = (trainer.folder / f"{name}.{side}").read_text().replace("a", "ä")
            (tmp_path / f"{name}.{side}").write_text(lines, encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(deepwire.__file__).parents[1]),
        "LC_ALL": "C",
        "OMP_NUM_THREADS": "1",
    }

    limits = ("decoding.max_length_ratio=0", "decoding.max_length_extra=4")
    train = ["train", "run.yaml", "run=läuft", *SHORT, *limits]
    translate = ["translate", "läuft", "--input", "valid.src", "--output", "übersetzt"]
    # Both in one new interpreter, whose locale is that of the environment.
    both = f"from deepwire.cli.main import main; import sys; sys.exit(main({train!r}) or main({translate!r}))"
    command = [sys.executable, "-c", both]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "übersetzt").read_text(encoding="utf-8").count("\n") == 20
    assert "ä" in (tmp_path / "läuft" / "config.resolved.json").read_text(encoding="utf-8")
