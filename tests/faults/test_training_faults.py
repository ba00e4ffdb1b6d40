"""Training that is killed, interrupted, out of disk or started twice ends with the same numbers."""

from __future__ import annotations

import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from one_process import UPDATES, Trainer, same_as_straight
from toy_run import after_step, stand_before, wait_for

from deepwire.training.optimizers.optimizer import Optimizer


def test_killed_at_random_moments_gives_the_same_run(trainer: Trainer) -> None:
    generator, kills = random.Random(5), 4
    for _ in range(kills):
        child = trainer.begin("killed", before=lambda: stand_before(UPDATES))
        time.sleep(generator.uniform(0.05, 0.8))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, trainer.text()
    assert trainer.train("killed") == 0, trainer.text()
    assert same_as_straight(trainer, "killed")


def after_step_of(number: int, act: Callable[[], object]) -> Callable[[], None]:
    return lambda: after_step(number, lambda _: act())


def die_at(call: int) -> Callable[[], None]:
    """Makes the process kill itself at its n-th fsync or rename, mostly inside checkpoint writes."""

    def patch() -> None:
        calls = [0]

        def dying(function: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*arguments: object) -> object:
                calls[0] += 1
                if calls[0] == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments)

            return wrapped

        os.fsync, os.replace = dying(os.fsync), dying(os.replace)

    return patch


def test_killed_inside_checkpoint_writes_gives_the_same_run(trainer: Trainer) -> None:
    calls = (2, 9, 15, 21, 23, 40)
    for call in calls:
        assert trainer.train("torn", before=die_at(call)) == -signal.SIGKILL
        run = trainer.run_directory("torn")
        for one in run.checkpoints():
            assert (one.path / "manifest.json").exists()
    assert trainer.train("torn") == 0, trainer.text()
    assert same_as_straight(trainer, "torn")


STOPPING = {signal.SIGTERM: 143, signal.SIGINT: 130}
LIKE_TERM = {signal.SIGHUP: 129, signal.SIGXCPU: 152, signal.SIGUSR2: 140, signal.SIGALRM: 142}


@pytest.mark.parametrize(
    ("number", "code"),
    [*STOPPING.items(), *(pytest.param(*each, marks=pytest.mark.slow) for each in LIKE_TERM.items())],
)
def test_a_signal_saves_and_stops(trainer: Trainer, number: signal.Signals, code: int) -> None:
    name, saved = number.name, 7
    told = after_step_of(saved, lambda: signal.raise_signal(number))
    assert trainer.train(name, before=told) == code
    run = trainer.run_directory(name)
    assert run.checkpoints()[-1].update == saved
    assert f"saved {run.checkpoint_path(saved)}" in trainer.text()
    # Nothing was validated by then.
    assert f"newest checkpoint: {run.checkpoint_path(saved)} (not validated" in trainer.text()
    assert "best checkpoint" not in trainer.text()
    assert trainer.train(name) == 0
    assert f"continued from update-{saved:06d}" in trainer.text()
    assert same_as_straight(trainer, name)


@pytest.mark.parametrize(
    ("handler", "code", "last"), [(signal.SIG_DFL, 129, 8), (signal.SIG_IGN, 0, UPDATES)], ids=["told", "not"]
)
def test_a_terminal_that_goes_away_costs_no_update(
    trainer: Trainer, handler: signal.Handlers, code: int, last: int
) -> None:
    """As when a connection drops: the kernel sends SIGHUP, and every write to the terminal fails."""
    master, slave = os.openpty()
    name = f"terminal-{code}"
    terminal = os.ttyname(slave)
    standing, gone = (trainer.folder / f"{name}-{what}" for what in ("standing", "gone"))

    def sit_at_it() -> None:
        os.close(master)
        os.close(slave)
        os.setsid()
        # Open for both, it controls this process from now on.
        sys.stdout = sys.stderr = os.fdopen(os.open(terminal, os.O_RDWR), "w")
        signal.signal(signal.SIGHUP, handler)
        after_step(8, lambda _: (standing.touch(), wait_for(gone, 60)))

    child = trainer.begin(name, before=sit_at_it)
    while not standing.exists():
        if select.select([master], [], [], 0.1)[0]:
            os.read(master, 10_000)
    os.close(slave)  # not before: while nobody has it open, nothing can be read
    os.close(master)
    gone.write_text("now")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    run = trainer.run_directory(name)
    assert run.checkpoints()[-1].update == last
    assert f"stopped at update {last}: " in run.log.read_text()
    assert "nothing can be shown any more (Input/output error)" in run.log.read_text()
    assert trainer.train(name) == 0
    assert same_as_straight(trainer, name)


def test_a_reader_of_the_log_that_goes_away_does_not_stop_the_run(trainer: Trainer) -> None:
    """As in `deepwire train run.yaml 2>&1 | head -1`."""

    def into_nothing() -> None:
        reader, writer = os.pipe()
        os.close(reader)
        sys.stderr = os.fdopen(writer, "w")

    assert trainer.train("unread", before=into_nothing) == 0
    assert "nothing can be shown any more (Broken pipe)" in trainer.run_directory("unread").log.read_text()
    assert same_as_straight(trainer, "unread")


def test_a_wish_to_save_does_not_stop_or_change_the_run(trainer: Trainer) -> None:
    settings = ("training.checkpoint.every=1000", "training.checkpoint.keep_last=9")
    told = after_step_of(7, lambda: signal.raise_signal(signal.SIGUSR1))
    assert trainer.train("usr1", *settings, before=told) == 0
    assert 7 in [one.update for one in trainer.run_directory("usr1").checkpoints()]
    assert same_as_straight(trainer, "usr1")


def limit_file_size(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_disk_that_fills_up_costs_nothing_but_the_end_of_the_run(trainer: Trainer) -> None:
    assert trainer.train("full", "training.max_updates=10") == 0
    run = trainer.run_directory("full")
    before = [one.update for one in run.checkpoints()]
    size = (run.checkpoint_path(10) / "model.safetensors").stat().st_size - 100
    assert trainer.train("full", before=limit_file_size(size)) == 6
    message = trainer.text()
    assert "error: " in message
    assert "File too large" in message
    assert "Traceback" not in message
    assert [one.update for one in run.checkpoints()] == before
    assert trainer.train("full") == 0, trainer.text()
    assert same_as_straight(trainer, "full")


def test_a_second_trainer_is_refused_and_the_first_goes_on(trainer: Trainer) -> None:
    first = trainer.begin("twice", "training.max_updates=100k")
    wait_for(trainer.run_directory("twice").metrics)
    assert trainer.train("twice", "training.max_updates=100k") == 2
    assert f"is in use by pid {first} on host " in trainer.text()
    os.kill(first, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) == 143


def test_a_second_interrupt_stops_at_once(trainer: Trainer) -> None:
    """The update is not ended any more."""

    def interrupt_twice(self: Optimizer) -> None:
        signal.raise_signal(signal.SIGINT)
        print("told once", flush=True)
        signal.raise_signal(signal.SIGINT)
        os._exit(99)

    def patch() -> None:
        Optimizer.zero_grad = interrupt_twice  # type: ignore[method-assign]

    assert trainer.train("impatient", before=patch) == 130
    assert "told once" in trainer.text()
