"""Memory and time against the size of the corpus: preparation, and the start of training.

    python benchmarks/corpus_memory.py [--pairs 200k 500k 1M] [--cores 1 2] [--updates 20] [--folder DIR]
        [--json FILE] [--markdown FILE]

Makes corpora of any size of examples/multi30k: each pair joins two of its 29,000 pairs, other two each
time, so that all pairs differ while words and lengths stay those of real text. Each size is prepared with
each number of cores (the last one is kept), and then a tiny model is trained for some updates, in processes
of their own. Memory is what the system counts for them, twenty times a second, all of their processes added
up: anonymous memory is the program's own; mapped memory is pages of files, which the system takes back when
it needs room. Start-up is the time from the call to the end of the first update, the import of torch
included; a second start continues from the checkpoint of the first. 20M pairs take about 20 GB of disk.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from deepwire.data.batches.epoch_order import Permutation

HERE = Path(__file__).resolve().parent
TEXT = HERE.parent / "examples" / "multi30k"
SIDES = ("de", "en")
BLOCK = 20_000
RUN_FILE = """
seed: 1
data:
  source: de
  target: en
  train: train
  valid: valid
  prepared: prepared
  vocabulary: {type: bpe, size: 8k, max_training_sentences: 20k}
model:
  d_model: 16
  heads: 2
  feed_forward: 32
  encoder: {layers: 1}
  decoder: {layers: 1}
training:
  batch_tokens: 4k
  log_every: 1
  precision: fp32
  device: cpu
  threads: 1
"""


@dataclass(frozen=True)
class Watched:
    """A process and all that it started.

    Attributes:
        seconds: Until it ended.
        cpu: Seconds of all cores together that it took; other programs on the machine do not lengthen them.
        first: Until a file that was waited for had a line; NaN if it never had.
        anonymous, mapped: The largest sums that were seen, in bytes.
    """

    seconds: float
    cpu: float
    first: float
    anonymous: int
    mapped: int


@dataclass(frozen=True)
class Preparation:
    """Preparation of a corpus with so many cores."""

    cores: int
    seconds: float
    cpu: float
    pairs_per_second: float
    anonymous: int
    mapped: int


@dataclass(frozen=True)
class Size:
    """What was found for one size of the corpus."""

    pairs: int
    text_bytes: int
    prepared_bytes: int
    preparations: list[Preparation]
    start: Watched
    continuation: Watched


def main() -> None:
    options = arguments()
    results = []
    for pairs in options.pairs:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            result = measure(Path(folder), pairs, options.cores, options.updates)
        results.append(result)
        print(as_lines(result), flush=True)
        if options.json is not None:
            record = {"machine": machine(), "sizes": [asdict(one) for one in results]}
            options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    text = as_table(results)
    print(f"\n{text}")
    if options.markdown is not None:
        options.markdown.write_text(text + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=count, nargs="+", default=[200_000, 500_000, 1_000_000])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where to work; default: the temporary folder")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    return parser.parse_args()


def count(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kM]?)", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of pairs, such as 500k or 20M")
    return int(match[1]) * {"": 1, "k": 1000, "M": 1_000_000}[match[2]]


def machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def measure(folder: Path, pairs: int, cores: Sequence[int], updates: int) -> Size:
    """Make a corpus, prepare it, begin to train on it, and continue."""
    text_bytes = write_corpus(folder, pairs)
    (folder / "run.yaml").write_text(RUN_FILE)
    preparations = [prepare(folder, pairs, number) for number in cores]
    first, second = (train(folder, limit) for limit in (updates, 2 * updates))
    return Size(pairs, text_bytes, size_of(folder / "prepared"), preparations, first, second)


def write_corpus(folder: Path, pairs: int) -> int:
    """Write `train.de`, `train.en` and a small validation text; returns the bytes of the two."""
    lines = {side: read(f"train.{side}") for side in SIDES}
    many = len(lines["de"])
    if pairs > many * many:
        sys.exit(f"error: at most {many * many} pairs can be made")
    for side in SIDES:
        own = lines[side]
        with (folder / f"train.{side}").open("w", encoding="utf-8", newline="\n") as file:
            for first, second in chosen(pairs, many):
                file.write(f"{own[first]} {own[second]}\n")
        (folder / f"valid.{side}").write_text("".join(f"{line}\n" for line in read(f"val.{side}")[:100]))
    return sum((folder / f"train.{side}").stat().st_size for side in SIDES)


def read(name: str) -> list[str]:
    return gzip.decompress((TEXT / f"{name}.gz").read_bytes()).decode().split("\n")[:-1]


def chosen(pairs: int, many: int) -> Iterator[tuple[int, int]]:
    """Two of `many` for each pair, never the same two in the same order again."""
    import numpy as np

    permutation = Permutation(many * many, seed=1)
    for start in range(0, pairs, BLOCK):
        numbers = permutation[np.arange(start, min(start + BLOCK, pairs))]
        firsts, seconds = np.divmod(numbers, many)
        yield from zip(firsts.tolist(), seconds.tolist(), strict=True)


def prepare(folder: Path, pairs: int, cores: int) -> Preparation:
    shutil.rmtree(folder / "prepared", ignore_errors=True)
    found = watched(["prepare", str(folder / "run.yaml")], cores=cores)
    rate = pairs / found.seconds
    return Preparation(cores, found.seconds, found.cpu, rate, found.anonymous, found.mapped)


def train(folder: Path, updates: int) -> Watched:
    run = folder / "run"
    settings = [f"run={run}", f"training.max_updates={updates}", f"training.validation.every={updates}"]
    return watched(["train", str(folder / "run.yaml"), *settings], cores=1, log=run / "metrics.jsonl")


def watched(arguments: Sequence[str], *, cores: int, log: Path | None = None) -> Watched:
    """Run a command of deepwire on so many cores, and watch it."""
    lines_before = lines_of(log)
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "deepwire", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores]),
    )
    anonymous = mapped = 0
    first = float("nan")
    ended, status = 0, 0
    while not ended:
        own, files = resident(process.pid)
        anonymous, mapped = max(anonymous, own), max(mapped, files)
        if first != first and lines_of(log) > lines_before:
            first = time.monotonic() - begun
        time.sleep(0.05)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
    seconds = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        assert process.stdout is not None
        sys.exit(process.stdout.read().decode())
    return Watched(seconds, usage.ru_utime + usage.ru_stime, first, anonymous, mapped)


def lines_of(log: Path | None) -> int:
    return log.read_bytes().count(b"\n") if log is not None and log.exists() else 0


def resident(root: int) -> tuple[int, int]:
    """Anonymous and mapped bytes of a process and its descendants, as far as they are still there.

    A child that does not run its own program yet shares the pages of its parent: it is left out.
    """
    own = files = 0
    waiting = [(root, b"")]
    while waiting:
        pid, parent = waiting.pop()
        try:
            program = Path(f"/proc/{pid}/cmdline").read_bytes()
            status = Path(f"/proc/{pid}/status").read_text()
            waiting += [
                (int(child), program)
                for task in Path(f"/proc/{pid}/task").iterdir()
                for child in (task / "children").read_text().split()
            ]
        except OSError:
            continue
        if program != parent:
            sizes = dict(re.findall(r"(Rss\w+):\s+(\d+) kB", status))
            own += 1024 * int(sizes.get("RssAnon", 0))
            files += 1024 * (int(sizes.get("RssFile", 0)) + int(sizes.get("RssShmem", 0)))
    return own, files


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def as_lines(size: Size) -> str:
    prepared = ", ".join(
        f"{one.seconds:.1f} s with {one.cores} cores ({mb(one.anonymous)} MB)" for one in size.preparations
    )
    return (
        f"{size.pairs:,} pairs: prepared in {prepared}; first update after {size.start.first:.1f} s, "
        f"{mb(size.start.anonymous)} + {mb(size.start.mapped)} MB"
    )


def mb(count: int) -> str:
    return f"{count / 1e6:.0f}"


def as_table(sizes: Sequence[Size]) -> str:
    """A row for each size and number of cores, in Markdown."""
    lines = [
        "| pairs | text MB | prepared MB | cores | prepare s | CPU s | pairs/s | prepare MB own + mapped "
        "| first update s | continued s | train MB own + mapped |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size in sizes:
        for one in size.preparations:
            trained = (
                f"{size.start.first:.1f} | {size.continuation.first:.1f} | "
                f"{mb(size.start.anonymous)} + {mb(size.start.mapped)}"
            )
            cells = [
                f"{size.pairs:,}",
                mb(size.text_bytes),
                mb(size.prepared_bytes),
                str(one.cores),
                f"{one.seconds:.1f}",
                f"{one.cpu:.1f}",
                f"{one.pairs_per_second:,.0f}",
                f"{mb(one.anonymous)} + {mb(one.mapped)}",
                trained if one is size.preparations[-1] else "| |",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
