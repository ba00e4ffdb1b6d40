"""The same run with 1, 2 and 4 processes, whole and sharded: how far losses and weights lie apart.

    python tests/faults/same_numbers.py [--processes 2 4] [--updates 12]

Dropout and random subwords are off, because they are drawn for each process. The first half of each sharded
run is made by all its processes and the second half by one, from their checkpoint. The exit code is 1 if a
loss or gradient norm differs by more than 1e-5 of itself.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from job_of_processes import EXACT, Launcher

MOST = 1e-5


def main() -> int:
    """Train every way and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--updates", type=int, default=12)
    options = parser.parse_args()
    half, worst = options.updates // 2, 0.0
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(Path(folder))
        train(launcher, "alone", 1, options.updates)
        for count in options.processes:
            train(launcher, f"{count} processes", count, options.updates)
            name = f"{count} processes, sharded, then 1"
            train(launcher, name, count, half, "training.sharding=full")
            train(launcher, name, 1, options.updates, "training.sharding=full")
            for way in (f"{count} processes", name):
                numbers, weights = differences(launcher, way, options.updates)
                worst = max(worst, numbers)
                print(
                    f"{way}: losses and gradient norms of {options.updates} updates within {numbers:.1e} of "
                    f"themselves, weights within {weights:.1e}",
                    flush=True,
                )
    return 1 if worst > MOST else 0


def train(launcher: Launcher, name: str, count: int, updates: int, *settings: str) -> None:
    limit = f"training.max_updates={updates}"
    if launcher.train(name, count, *EXACT, limit, "training.checkpoint.every=3", *settings) != [0] * count:
        sys.exit(launcher.text())


def differences(launcher: Launcher, name: str, updates: int) -> tuple[float, float]:
    """The largest of all losses and gradient norms as a share of themselves, and of all weights."""
    ours, theirs = (launcher.outcome(run, updates)[0] for run in (name, "alone"))
    numbers = [
        abs(float(mine[key]) - float(other[key])) / abs(float(other[key]))
        for mine, other in zip(ours, theirs, strict=True)
        for key in ("loss", "nll", "gradient_norm")
        if isinstance(other.get(key), float)
    ]
    weights, expected = (launcher.weights(run, updates) for run in (name, "alone"))
    return max(numbers), max(float((weights[key] - expected[key]).abs().max()) for key in expected)


if __name__ == "__main__":
    sys.exit(main())
