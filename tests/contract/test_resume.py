"""A run that was killed after 15 of 30 updates ends with the same bits as one that was not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from contract_runs import SYSTEMS, digests, fork, run_file, succeed, write_text

import deepwire


class Death(deepwire.Callback):
    """Kills the process after update 17, of which update 15 was saved."""

    def after_update(self, session: deepwire.TrainingSession, update: deepwire.UpdateResult) -> None:
        if update.number == 17:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resume")
    write_text(path)
    for system in SYSTEMS:
        text = run_file(system, dropout=0.1)
        if system == "depth_lstm":
            text = text.replace("byte_fallback: false", "byte_fallback: false, sampling: 0.2")
        (path / f"{system}.yaml").write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_and_continued_is_the_same_run(folder: Path, system: str) -> None:
    path, whole, killed = folder / f"{system}.yaml", folder / f"{system}-whole", folder / f"{system}-killed"
    deepwire.train(path, run=whole, quiet=True)

    def die() -> int:
        deepwire.train(path, run=killed, callbacks=[Death()], quiet=True)
        return 0

    status = os.waitpid(fork(die), 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert not (killed / "checkpoints/update-000030").exists()
    succeed("train", path.name, f"run={killed.name}", "--quiet", cwd=folder)
    assert digests(killed, 30) == digests(whole, 30)
    ours, theirs = (
        [(record["update"], record["loss"]) for record in deepwire.Run(run).history]
        for run in (killed, whole)
    )
    assert ours == theirs


def test_a_finished_run_stays_and_a_longer_one_goes_on(folder: Path) -> None:
    run = ("pre_norm.yaml", "run=longer", "--quiet")
    succeed("train", *run, "training.max_updates=15", cwd=folder)
    before = digests(folder / "longer", 15)
    succeed("train", *run, "training.max_updates=15", cwd=folder)
    assert digests(folder / "longer", 15) == before
    succeed("train", *run, cwd=folder)
    succeed("train", "pre_norm.yaml", "run=at-once", "--quiet", cwd=folder)
    assert digests(folder / "longer", 30) == digests(folder / "at-once", 30)
