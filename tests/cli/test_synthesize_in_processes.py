"""``deepwire distill`` in several processes writes what one process writes, also after an interruption."""

from __future__ import annotations

import json
import signal

import pytest
from job_of_processes import Launcher
from translating_processes import die_in_translation, launcher_with_model


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return launcher_with_model(tmp_path_factory.mktemp("distilling"))


def arguments(launcher: Launcher, output: str) -> list[str]:
    folder = launcher.folder
    files = ["--source", str(folder / "text"), "--output", str(folder / f"{output}.gz")]
    return ["distill", str(folder / "model"), *files, "window=5", "--precision", "fp32"]


def files(launcher: Launcher, output: str) -> list[bytes]:
    return [(launcher.folder / f"{output}.{ending}.gz").read_bytes() for ending in ("src", "trg")]


def test_two_processes_killed_and_called_again_write_what_one_writes(launcher: Launcher) -> None:
    assert launcher.command(1, *arguments(launcher, "alone")).wait() == [0], launcher.text()
    job = launcher.command(2, *arguments(launcher, "pair"), patch=die_in_translation(2))
    assert job.wait() == [-signal.SIGKILL] * 2
    assert len(list((launcher.folder / "pair.trg.gz.parts").glob("0*-*"))) == 2
    assert launcher.command(2, *arguments(launcher, "pair")).wait() == [0, 0], launcher.text()
    assert launcher.text().count("23 lines, in ") == 1
    assert files(launcher, "pair") == files(launcher, "alone")
    records = [json.loads((launcher.folder / f"{name}.json").read_text()) for name in ("pair", "alone")]
    assert records[0] == records[1]
    assert launcher.command(2, *arguments(launcher, "pair")).wait() == [0, 0]
    assert launcher.text().count("nothing to do") == 1


def test_a_mistake_is_one_line_once(launcher: Launcher) -> None:
    assert launcher.command(2, *arguments(launcher, "no/folder")).wait() == [2, 2]
    assert launcher.text().count("error: ") == 1
    assert "no does not exist" in launcher.text()
