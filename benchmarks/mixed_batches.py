"""CPU time of a model that is asked for batches of all sizes, as a server or a page is.

    python benchmarks/mixed_batches.py MODEL --text FILE [--batches 240] [--most 8] [--seed 1]

A batch has one to `--most` texts, each half a line of FILE, a line, or two. Prints seconds of CPU time for
each third of the batches, the peak of memory, and a digest of the translations. One thread, as on a small
server.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import time
from pathlib import Path

import torch

import deepwire
from deepwire.ops.allocator import keep_memory


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--batches", type=int, default=240)
    parser.add_argument("--most", type=int, default=8, help="texts of a batch")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()  # as `deepwire serve` does
    model, chance = deepwire.load(options.model), random.Random(options.seed)
    lines = options.text.read_text().splitlines()

    def text() -> str:
        line, kind = chance.choice(lines), chance.random()
        words = line.split()
        half, two = " ".join(words[: len(words) // 2]), f"{line} {chance.choice(lines)}"
        return line if kind < 0.5 else half if kind < 0.75 else two

    digest, seconds = hashlib.sha256(), []
    for _ in range(3):
        begun = time.process_time()
        for _ in range(options.batches // 3):
            found = model.translate([text() for _ in range(chance.randint(1, options.most))])
            digest.update("\n".join(found).encode())
        seconds.append(round(time.process_time() - begun, 2))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{seconds} seconds of CPU time, {peak} MiB, translations {digest.hexdigest()[:12]}")


if __name__ == "__main__":
    main()
