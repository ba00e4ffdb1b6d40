"""Training that is killed, interrupted, out of disk or started twice ends with the same numbers."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.cli.main import main

CLOCKS = ("seconds", "tokens_per_second", "memory")
UPDATES = 40
RUN_FILE = f"""
seed: 3
data:
  source: src
  target: trg
  train: train
  valid: valid
  prepared: prepared
  vocabulary: {{type: bpe, size: 40, byte_fallback: false, sampling: 0.2}}
model:
  d_model: 16
  heads: 2
  feed_forward: 32
  dropout: 0.2
  encoder: {{layers: 1}}
  decoder: {{layers: 1}}
training:
  max_updates: {UPDATES}
  batch_tokens: 300
  micro_batch_tokens: 100
  log_every: 4
  schedule: {{peak: 0.01, warmup: 10}}
  validation: {{every: 10}}
  checkpoint: {{every: 5, keep_last: 2}}
  precision: fp32
  device: cpu
"""


class Trainer:
    """Runs ``deepwire train`` in forked children, which starts at once because torch is imported already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "stderr.txt"
        generator = random.Random(1)
        for name, count in (("train", 200), ("valid", 20)):
            lines = [
                "".join(generator.choices("abcdefgh ", k=generator.randint(5, 20))) for _ in range(count)
            ]
            (folder / f"{name}.src").write_text("".join(f"x{line}\n" for line in lines))
            (folder / f"{name}.trg").write_text("".join(f"{line[::-1]}x\n" for line in lines))
        (folder / "run.yaml").write_text(RUN_FILE)

    def run_directory(self, name: str) -> RunDirectory:
        return RunDirectory(self.folder / name)

    def begin(self, name: str, *settings: str, before: Callable[[], object] = lambda: None) -> int:
        """Start training in ``name``; gives the process id. ``before`` is called in the child."""
        child = os.fork()
        if child:
            return child
        code = 99
        try:
            torch.set_num_threads(1)
            with self.output.open("w") as output:
                sys.stdout = sys.stderr = output
                before()
                code = main(["train", str(self.folder / "run.yaml"), f"run={self.folder / name}", *settings])
        finally:
            os._exit(code)

    def train(self, name: str, *settings: str, before: Callable[[], object] = lambda: None) -> int:
        """Train to the end; gives the exit code, or minus the signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.begin(name, *settings, before=before), 0)[1])


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    trainer = Trainer(tmp_path_factory.mktemp("faults"))
    assert trainer.train("straight") == 0, trainer.output.read_text()
    return trainer


def outcome(run: RunDirectory) -> tuple[list[object], list[str]]:
    """All metrics without clocks, and the digests of weights and optimizer at the end."""
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    metrics = [{key: value for key, value in line.items() if key not in CLOCKS} for line in lines]
    manifest = json.loads((run.checkpoint_path(UPDATES) / "manifest.json").read_text())
    names = ("model.safetensors", "optimizer.safetensors")
    return metrics, [manifest["files"][name]["blake2b"] for name in names]


def same_as_straight(trainer: Trainer, name: str) -> bool:
    run = trainer.run_directory(name)
    leftovers = [path for path in run.path.rglob("*") if ".tmp" in path.name or ".old" in path.name]
    return outcome(run) == outcome(trainer.run_directory("straight")) and leftovers == []


def test_killed_at_random_moments_gives_the_same_run(trainer: Trainer) -> None:
    generator, killed = random.Random(5), 0
    while True:
        child = trainer.begin("killed")
        patience = generator.uniform(0.05, 0.8) if killed < 8 else 60.0
        ended, status, start = 0, 0, time.monotonic()
        while not ended and time.monotonic() - start < patience:
            time.sleep(0.005)
            ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0, trainer.output.read_text()
            break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
    assert killed >= 1
    assert same_as_straight(trainer, "killed")


def die_at(call: int) -> Callable[[], None]:
    """Makes the process kill itself at its n-th fsync or rename, mostly inside checkpoint writes."""

    def patch() -> None:
        calls = [0]

        def dying(function: Callable[..., object]) -> Callable[..., object]:
            def wrapped(*arguments: object) -> object:
                calls[0] += 1
                if calls[0] == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments)

            return wrapped

        os.fsync, os.replace = dying(os.fsync), dying(os.replace)

    return patch


def test_killed_inside_checkpoint_writes_gives_the_same_run(trainer: Trainer) -> None:
    for call in (2, 9, 15, 21, 23, 40):
        assert trainer.train("torn", before=die_at(call)) == -signal.SIGKILL
        run = trainer.run_directory("torn")
        for one in run.checkpoints():
            assert (one.path / "manifest.json").exists()
    assert trainer.train("torn") == 0, trainer.output.read_text()
    assert same_as_straight(trainer, "torn")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_stops(trainer: Trainer, number: signal.Signals, code: int) -> None:
    name = number.name
    child = trainer.begin(name)
    wait_for(trainer.run_directory(name).metrics)
    os.kill(child, number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    run = trainer.run_directory(name)
    saved = run.checkpoints()[-1].update
    assert 1 <= saved < UPDATES
    assert f"saved {run.checkpoint_path(saved)}" in trainer.output.read_text()
    assert trainer.train(name) == 0
    assert f"continued from update-{saved:06d}" in trainer.output.read_text()
    assert same_as_straight(trainer, name)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.002)


def test_a_wish_to_save_does_not_stop_or_change_the_run(trainer: Trainer) -> None:
    child = trainer.begin("usr1", "training.checkpoint.every=1000", "training.checkpoint.keep_last=9")
    run = trainer.run_directory("usr1")
    wait_for(run.metrics)
    os.kill(child, signal.SIGUSR1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert " saved " in trainer.output.read_text()
    assert same_as_straight(trainer, "usr1")


def limit_file_size(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_disk_that_fills_up_costs_nothing_but_the_end_of_the_run(trainer: Trainer) -> None:
    assert trainer.train("full", "training.max_updates=20") == 0
    run = trainer.run_directory("full")
    before = [one.update for one in run.checkpoints()]
    size = (run.checkpoint_path(20) / "model.safetensors").stat().st_size - 100
    assert trainer.train("full", before=limit_file_size(size)) == 6
    message = trainer.output.read_text()
    assert "error: " in message
    assert "File too large" in message
    assert "Traceback" not in message
    assert [one.update for one in run.checkpoints()] == before
    assert trainer.train("full") == 0, trainer.output.read_text()
    assert same_as_straight(trainer, "full")


def test_too_little_space_is_seen_before_a_checkpoint_is_written(trainer: Trainer) -> None:
    def no_space() -> None:
        import shutil

        usage = shutil.disk_usage(trainer.folder)
        shutil.disk_usage = lambda _: usage._replace(free=5000)

    assert trainer.train("small", before=no_space) == 6
    message = trainer.output.read_text()
    assert "but only 5.0 kB are free" in message
    assert "run the same command again" in message
    assert trainer.run_directory("small").checkpoints() == []


def test_a_damaged_checkpoint_is_passed_over(trainer: Trainer) -> None:
    assert trainer.train("damaged", "training.max_updates=20") == 0
    run = trainer.run_directory("damaged")
    with (run.checkpoint_path(20) / "optimizer.safetensors").open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        file.write(b"\x55")
    assert trainer.train("damaged") == 0, trainer.output.read_text()
    expected = (
        f"{run.checkpoint_path(20)} is damaged (optimizer.safetensors: digest differs); using update-000015"
    )
    assert expected in trainer.output.read_text()
    assert same_as_straight(trainer, "damaged")


def test_a_second_trainer_is_refused_and_the_first_goes_on(trainer: Trainer) -> None:
    first = trainer.begin("twice", "training.max_updates=100k")
    wait_for(trainer.run_directory("twice").metrics)
    assert trainer.train("twice", "training.max_updates=100k") == 2
    assert f"is in use by pid {first} on host " in trainer.output.read_text()
    os.kill(first, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) == 143


def test_a_second_interrupt_stops_at_once(trainer: Trainer) -> None:
    def slow_step() -> None:
        from deepwire.training.optimizer import Optimizer

        Optimizer.zero_grad = lambda _: time.sleep(100)  # type: ignore[method-assign]

    child = trainer.begin("impatient", before=slow_step)
    wait_for(trainer.run_directory("impatient").environment)
    start, ended = time.monotonic(), 0
    while not ended:
        os.kill(child, signal.SIGINT)
        time.sleep(0.1)
        ended, status = os.waitpid(child, os.WNOHANG)
        assert time.monotonic() - start < 30
    assert os.waitstatus_to_exitcode(status) == 130
