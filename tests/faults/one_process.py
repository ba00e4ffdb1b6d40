"""Training in one forked process, which starts at once because torch is imported already."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

# What the forked processes need is imported once, here.
import deepwire.cli.train
import deepwire.runfile
import deepwire.training.start  # noqa: F401
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


Before = Callable[[], object]


def nothing() -> None:
    """Patch nothing."""


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

    def begin(self, name: str, *settings: str, before: Before = nothing) -> int:
        """Start training in ``name``; gives the process id. ``before`` is called in the child."""
        arguments = ["train", str(self.folder / "run.yaml"), f"run={self.folder / name}", *settings]
        return self._fork(arguments, before)

    def train(self, name: str, *settings: str, before: Before = nothing) -> int:
        """Train to the end; gives the exit code, or minus the signal."""
        return _ended(self.begin(name, *settings, before=before))

    def command(self, *arguments: str, before: Before = nothing) -> int:
        """Run any command of deepwire to the end; gives the exit code, or minus the signal."""
        return _ended(self._fork(arguments, before))

    def text(self) -> str:
        """What the last command wrote to stdout and stderr."""
        return self.output.read_text()

    def _fork(self, arguments: Sequence[str], before: Before) -> int:
        child = os.fork()
        if child:
            return child
        code = 99
        try:
            torch.set_num_threads(1)
            with self.output.open("w", errors="surrogateescape") as output:
                sys.stdout = sys.stderr = output
                before()
                code = main(arguments)
        finally:
            os._exit(code)


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.002)
