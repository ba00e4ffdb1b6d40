"""Training in several forked processes, which start at once because torch is imported already.

They find what torchrun would give them: ranks in the environment, and a store that outlives them.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from forked import fork
from safetensors.torch import load_file
from torch import _dynamo  # noqa: F401 - sharding imports it at its first step
from torch.distributed import TCPStore
from toy_run import digests, records, run_file, write_corpus

import deepwire.training.sharded_strategy  # noqa: F401 - what the forked processes need is imported once, here
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.cli.main import main
from deepwire.distributed import distributed_group

UPDATES = 12
RUN_FILE = run_file(
    max_updates=UPDATES,
    micro_batch_tokens=130,
    log_every=1,
    schedule={"peak": 0.01, "warmup": 4},
    validation={"every": 6},
    checkpoint={"every": 3, "keep_last": 2},
)
# Without random numbers the losses do not depend on the number of processes.
EXACT = ("model.dropout=0", "data.vocabulary.sampling=0")
Patch = Callable[[int], object]


def nothing(_rank: int) -> None:
    """Patch nothing."""


class Running:
    """Processes that train."""

    def __init__(self, children: list[int], store: int) -> None:
        self.children, self._store = children, store

    def signal(self, number: signal.Signals, *ranks: int) -> None:
        for rank in ranks or range(len(self.children)):
            os.kill(self.children[rank], number)

    def alive(self) -> bool:
        """Whether any of them still runs."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return any(os.waitid(os.P_PID, child, options) is None for child in self.children)

    def wait(self, seconds: float = 600) -> list[int]:
        """The exit codes by rank, or minus the signal; what still runs after the time is killed, and -9."""
        deadline = time.monotonic() + seconds
        codes: dict[int, int | None] = dict.fromkeys(self.children)
        while None in codes.values():
            for child in [child for child, code in codes.items() if code is None]:
                if time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
                ended, status = os.waitpid(child, os.WNOHANG)
                codes[child] = os.waitstatus_to_exitcode(status) if ended else None
            time.sleep(0.005)
        os.kill(self._store, signal.SIGKILL)
        os.waitpid(self._store, 0)
        return [code for code in codes.values() if code is not None]


class Launcher:
    """Runs ``deepwire train`` on a toy corpus in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output.txt"
        write_corpus(folder, {"train": 120, "valid": 13})
        (folder / "run.yaml").write_text(RUN_FILE)

    def run_directory(self, name: str) -> RunDirectory:
        return RunDirectory(self.folder / name)

    def begin(self, name: str, count: int, *settings: str, patch: Patch = nothing) -> Running:
        """Start training in ``name``; ``patch`` is called with the rank in each process."""
        arguments = ["train", str(self.folder / "run.yaml"), f"run={self.folder / name}", *settings]
        return self.command(count, *arguments, patch=patch)

    def command(self, count: int, *arguments: str, patch: Patch = nothing) -> Running:
        """Start any command of deepwire."""
        self.output.write_text("")
        store, port = self._store()
        return Running([self._fork(rank, count, port, arguments, patch) for rank in range(count)], store)

    def train(self, name: str, count: int, *settings: str, patch: Patch = nothing) -> list[int]:
        """Train to the end; gives the exit codes."""
        return self.begin(name, count, *settings, patch=patch).wait()

    def text(self) -> str:
        """All that the processes of the last job have shown."""
        return self.output.read_text()

    def outcome(self, name: str, update: int = UPDATES) -> tuple[list[dict[str, object]], list[str]]:
        """All metrics without clocks, and the digests of weights and moments at the end."""
        run = self.run_directory(name)
        return records(run), digests(run, update)

    def lines(self, name: str) -> int:
        """How many lines of metrics a run has."""
        metrics = self.run_directory(name).metrics
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def weights(self, name: str, update: int = UPDATES) -> dict[str, torch.Tensor]:
        return load_file(self.run_directory(name).checkpoint_path(update) / "model.safetensors")

    def _store(self) -> tuple[int, int]:
        """A process that keeps the store, as that of torchrun does, and its port."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
                os.write(writing, str(store.port).encode())
                while True:
                    signal.pause()
            finally:
                os._exit(99)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            return child, int(pipe.read(5))

    def _fork(self, rank: int, count: int, port: int, arguments: Sequence[str], patch: Patch) -> int:
        def work() -> int:
            # Nobody is there to name the process that failed first.
            distributed_group._COURTESY_SECONDS = 0
            os.environ |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TORCHELASTIC_RUN_ID": "test",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            }
            with self.output.open("a", buffering=1) as output:
                sys.stdout = sys.stderr = output
                patch(rank)
                return main(arguments)

        return fork(work)
