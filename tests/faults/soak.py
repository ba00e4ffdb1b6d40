"""A hundred rounds of kill -9 and continue; for a night, not for the suite.

    python tests/faults/soak.py [--kills 100] [--processes 1] [--life 1.2] [--seed 0] [--folder DIR]

Trains a toy run once without interruption. Then the same run again and again, each time killed at a random
moment and continued by the same command, until it ends; then anew, until there were so many kills.
A kill fell inside a checkpoint write if it left the unfinished folder. Every run that ends must have the
losses, gradient norms and learning rates of every update, and the digests of weights and moments, of the
undisturbed one: the exit code is 1 if any does not. With several processes all are killed at once; dropout,
random subwords and several micro-batches an update are on in both cases.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from job_of_processes import Launcher, Running

UPDATES = 60
# Checkpoints often and validation seldom, so that many kills meet a write.
SETTINGS = (
    f"training.max_updates={UPDATES}",
    "training.checkpoint.every=2",
    "training.validation.every=20",
    "training.micro_batch_tokens=110",
)


@dataclass
class Tally:
    """What was seen so far."""

    kills: int = 0
    inside_writes: int = 0
    before_the_first_update: int = 0
    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)


def main() -> int:
    """Run the soak and print a line for each round and the sum."""
    options = arguments()
    begun, generator = time.monotonic(), random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        launcher, tally = Launcher(Path(folder)), Tally()
        if launcher.train("straight", options.processes, *SETTINGS) != [0] * options.processes:
            sys.exit(launcher.text())
        while tally.kills < options.kills:
            until_the_end(launcher, options, generator, tally)
    left = ", ".join(f"{count} {name}" for name, count in sorted(tally.left.items())) or "nothing"
    print(
        f"\n{tally.kills} kills of {options.processes} process(es), {tally.inside_writes} inside a "
        f"checkpoint write, {tally.before_the_first_update} before the first new update; left: {left}\n"
        f"{tally.runs} runs of {UPDATES} updates ended, {len(tally.wrong)} with other numbers than the "
        f"undisturbed run; {time.monotonic() - begun:.0f} s"
    )
    return 1 if tally.wrong else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--life", type=float, default=1.2, help="seconds after which a trainer is killed at the latest"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--folder", type=Path, help="where to work; default: the temporary folder")
    return parser.parse_args()


def until_the_end(
    launcher: Launcher, options: argparse.Namespace, generator: random.Random, tally: Tally
) -> None:
    """One run, killed again and again until it ends by itself or there were enough kills."""
    processes, name = options.processes, f"run{tally.runs}"
    run = launcher.run_directory(name)
    while True:
        before = launcher.lines(name)
        job = launcher.begin(name, processes, *SETTINGS)
        enough = tally.kills >= options.kills
        if ended(job, 600.0 if enough else generator.uniform(0.0, options.life)):
            codes = job.wait()
            if codes != [0] * processes:
                sys.exit(f"{name} ended with {codes}:\n{launcher.text()}")
            break
        job.signal(signal.SIGKILL)
        job.wait()
        tally.kills += 1
        left = [path.name.rpartition(".")[2] for path in run.path.rglob(".*")]
        inside = any(path.parent == run.checkpoints_folder for path in run.path.rglob(".update-*"))
        tally.inside_writes += inside
        tally.left.update(left)
        newer = launcher.lines(name) - before
        tally.before_the_first_update += newer <= 0
        last = max((one.update for one in run.checkpoints()), default=0)
        where = "inside a checkpoint write" if inside else "elsewhere"
        print(f"kill {tally.kills:3d} of {name}: {where}, last checkpoint {last}", flush=True)
    tally.runs += 1
    if launcher.outcome(name, UPDATES) != launcher.outcome("straight", UPDATES):
        tally.wrong.append(name)
        print(f"{name}: OTHER NUMBERS", flush=True)
    else:
        print(f"{name}: the same bits", flush=True)


def ended(job: Running, seconds: float) -> bool:
    """Whether all processes end by themselves within the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not job.alive():
            return True
        time.sleep(0.002)
    return not job.alive()


if __name__ == "__main__":
    sys.exit(main())
