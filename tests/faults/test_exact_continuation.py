"""The hardest continuation: 2 processes, dropout, random subwords, 3 micro-batches, the end of an epoch."""

from __future__ import annotations

import os
import signal

import pytest
from job_of_processes import Launcher, Patch
from toy_run import after_step

from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream
from deepwire.data.prepare.prepared import prepare
from deepwire.runfile import load_run_file

MICRO = 110


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("exact"))


def batches_of_updates(launcher: Launcher) -> list[int]:
    """How many micro-batches each update of the first epoch has."""
    config = load_run_file(str(launcher.folder / "run.yaml"), ()).config
    prepared = prepare(config.data, seed=config.seed)
    settings = BatchSettings(config.training.batch_tokens, MICRO, sampling=config.data.vocabulary.sampling)
    words = prepared.vocabularies
    stream = UpdateStream(prepared.train, settings, seed=config.seed, vocabularies=words)
    sizes: list[int] = []
    for update, _ in stream.updates(StreamPosition()):
        if update.epoch:
            return sizes
        sizes.append(len(update.batches))
    return sizes


def die_after(number: int) -> Patch:
    """Every process kills itself after its n-th step of the optimizer."""
    return lambda _rank: after_step(number, lambda _: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.slow
def test_killed_at_the_end_of_an_epoch(launcher: Launcher) -> None:
    sizes = batches_of_updates(launcher)
    epoch = len(sizes)
    assert min(sizes) >= 3
    last = 2 * epoch + 2
    settings = (
        f"training.micro_batch_tokens={MICRO}",
        f"training.max_updates={last}",
        f"training.checkpoint.every={epoch}",
        f"training.validation.every={epoch}",
    )
    assert launcher.train("straight", 2, *settings) == [0, 0], launcher.text()
    # The epoch is made but not saved; it is saved and nothing more; amid the second epoch; at its end.
    for deaths in (epoch, epoch + 1, 2, epoch + 1):
        codes = launcher.train("killed", 2, *settings, patch=die_after(deaths))
        assert codes == [-signal.SIGKILL] * 2
    assert launcher.train("killed", 2, *settings) == [0, 0], launcher.text()
    assert f"continued from update-{2 * epoch:06d}" in launcher.text()
    ours, theirs = (launcher.outcome(name, last) for name in ("killed", "straight"))
    assert ours == theirs
    updates = [record for record in ours[0] if record["kind"] == "train"]
    assert len(updates) == last
