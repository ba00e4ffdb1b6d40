"""A toy corpus and run file for training in forked processes, and what two runs of it are compared by."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from deepwire.checkpoint.run_directory import Checkpoint, RunDirectory
from deepwire.distributed.process_group import ProcessGroup
from deepwire.runfile import CHANGEABLE
from deepwire.training import loop
from deepwire.training.device import DeviceUpdate
from deepwire.training.optimizers.optimizer import Optimizer
from deepwire.training.run import TrainingRun
from deepwire.training.session import Callback, open_session
from deepwire.training.spec import TrainingSpec, read_run_file, require_same_settings
from deepwire.training.state import StopReason

CLOCKS = ("seconds", "tokens_per_second", "memory")
RUN_FILE = """
seed: 3
data:
  source: src
  target: trg
  train: train
  valid: valid
  prepared: prepared
  vocabulary: {type: bpe, size: 40, byte_fallback: false, sampling: 0.2}
model:
  d_model: 16
  heads: 2
  feed_forward: 32
  dropout: 0.2
  encoder: {layers: 1}
  decoder: {layers: 1}
training:
  batch_tokens: 300
  precision: fp32
  device: cpu
"""


def run_file(**training: object) -> str:
    """The run file with more settings of training."""
    return RUN_FILE + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in training.items())


def write_corpus(folder: Path, counts: Mapping[str, int]) -> None:
    """Text of random letters and its reverse, for each name the number of lines."""
    generator = random.Random(1)
    for name, count in counts.items():
        lines = ["".join(generator.choices("abcdefgh ", k=generator.randint(5, 20))) for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(f"x{line}\n" for line in lines))
        (folder / f"{name}.trg").write_text("".join(f"{line[::-1]}x\n" for line in lines))


def records(run: RunDirectory, kind: str | None = None) -> list[dict[str, object]]:
    """The records of ``metrics.jsonl``, all or those of a kind, without clocks and memory."""
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in CLOCKS}
        for line in lines
        if kind is None or line["kind"] == kind
    ]


def digests(run: RunDirectory, update: int) -> list[str]:
    """The digests of weights and moments of a checkpoint."""
    manifest = json.loads((run.checkpoint_path(update) / "manifest.json").read_text())
    names = ("model.safetensors", "optimizer.safetensors")
    return [manifest["files"][name]["blake2b"] for name in names]


@dataclass(frozen=True)
class FinishedRun:
    """A run, equal to another one with the same records and the same weights and moments at the end."""

    directory: RunDirectory = field(compare=False)
    records: list[dict[str, object]]
    digests: list[str]

    @classmethod
    def of(cls, directory: RunDirectory, updates: int) -> FinishedRun:
        """What a run left behind after its last update."""
        return cls(directory, records(directory), digests(directory, updates))


@dataclass(frozen=True)
class Outcome:
    """Why a run stopped, and its best checkpoint, or the newest where nothing was scored."""

    stop_reason: StopReason
    best: Checkpoint | None


def run_training(
    spec: TrainingSpec,
    *,
    processes: ProcessGroup | None = None,
    fresh: bool = False,
    quiet: bool = False,
    handle_signals: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """Train as `deepwire.train` does, of a specification that was not made from a run file."""
    if not fresh and spec.run.checkpoints():
        changes = require_same_settings(
            spec.run.path, read_run_file(spec.run.resolved_config), spec.resolved, CHANGEABLE
        )
        spec = replace(spec, changes=tuple(changes))
    options = {"fresh": fresh, "quiet": quiet, "handle_signals": handle_signals}
    with open_session(spec, processes=processes, callbacks=callbacks, **options) as session:
        for _ in session:
            pass
    assert session.stop_reason is not None
    return Outcome(session.stop_reason, spec.run.best())


JobMaker = Callable[..., TrainingSpec]
RunTwice = Callable[..., tuple[FinishedRun, FinishedRun]]


def after_step(number: int, act: Callable[[Optimizer], object]) -> None:
    """Let this process do something after its n-th step of the optimizer."""
    step, calls = Optimizer.step, [0]

    def wrapped(self: Optimizer, learning_rate: float, loss: Tensor) -> object:
        result = step(self, learning_rate, loss)
        calls[0] += 1
        if calls[0] == number:
            act(self)
        return result

    Optimizer.step = wrapped  # type: ignore[assignment, method-assign]


def stand_before(number: int) -> None:
    """Let training come to a stand before this update, so that it is there to be killed at any time."""
    make = loop.make_gradient

    def wrapped(run: TrainingRun, trainer: loop.Trainer, update: DeviceUpdate) -> dict[str, Tensor]:
        if update.number >= number:
            time.sleep(3600)
        return make(run, trainer, update)

    loop.make_gradient = wrapped


def wait_for(path: Path, seconds: float = 600) -> None:
    """Wait until there is something in a file."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.002)
