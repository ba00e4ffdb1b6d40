"""Training in one forked process, which starts at once because torch is imported already."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from forked import fork
from toy_run import digests, records, run_file, write_corpus

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.cli.main import main

UPDATES = 20
RUN_FILE = run_file(
    max_updates=UPDATES,
    micro_batch_tokens=160,
    log_every=5,
    schedule={"peak": 0.01, "warmup": 10},
    validation={"every": 10},
    checkpoint={"every": 5, "keep_last": 2},
)
Before = Callable[[], object]


def nothing() -> None:
    """Patch nothing."""


class Trainer:
    """Runs ``deepwire train`` in forked children, which starts at once because torch is imported already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "stderr.txt"
        write_corpus(folder, {"train": 200, "valid": 20})
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
        self.output.write_text("")  # appended to, for there may be a second process that writes

        def work() -> int:
            with self.output.open("a", errors="surrogateescape") as output:
                sys.stdout = sys.stderr = output
                before()
                return main(arguments)

        return fork(work)


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(run: RunDirectory) -> tuple[list[dict[str, object]], list[str]]:
    """All metrics without clocks, and the digests of weights and optimizer at the end."""
    return records(run), digests(run, UPDATES)


def same_as_straight(trainer: Trainer, name: str) -> bool:
    run = trainer.run_directory(name)
    leftovers = [path for path in run.path.rglob("*") if ".tmp" in path.name or ".old" in path.name]
    assert "warning: metrics" not in run.log.read_text()
    return outcome(run) == outcome(trainer.run_directory("straight")) and leftovers == []
