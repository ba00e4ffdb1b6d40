"""Odd surroundings: places that cannot be written, clocks, no home, no locale, two trainers."""

from __future__ import annotations

import locale
import os
import time
from pathlib import Path

import pytest
from one_process import Trainer, same_as_straight

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

    assert trainer.train("clock", "training.max_updates=10", before=backwards) == 0, trainer.text()
    assert trainer.train("clock", before=backwards) == 0, trainer.text()
    assert same_as_straight(trainer, "clock")


def test_without_home_and_locale(tmp_path: Path) -> None:
    """Files are opened as UTF-8, whatever the locale."""
    trainer = Trainer(tmp_path)
    for path in tmp_path.glob("*.[st]r[cg]"):
        path.write_text(path.read_text().replace("a", "ä"), encoding="utf-8")

    def bare() -> None:
        os.environ.pop("HOME", None)
        locale.setlocale(locale.LC_ALL, "C")

    limits = ("decoding.max_length_ratio=0", "decoding.max_length_extra=4")
    assert trainer.train("läuft", *SHORT, *limits, before=bare) == 0, trainer.text()
    files = ("--input", f"{tmp_path}/valid.src", "--output", f"{tmp_path}/übersetzt")
    assert trainer.command("translate", f"{tmp_path}/läuft", *files, before=bare) == 0, trainer.text()
    assert (tmp_path / "übersetzt").read_text(encoding="utf-8").count("\n") == 20
    assert "ä" in (tmp_path / "läuft" / "config.resolved.json").read_text(encoding="utf-8")
