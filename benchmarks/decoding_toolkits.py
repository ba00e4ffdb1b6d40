"""Decoding speed of deepwire and of other toolkits, with models of one shape.

    python benchmarks/decoding_toolkits.py [--rounds 3] [--peers ~/.cache/deepwire-peers] ...
    python benchmarks/decoding_toolkits.py --task tiny --batch 8 --rounds 1 --sentences 500   # does it work?

Each toolkit translates through its own command line, in its own environment (benchmarks/peers/setup_*.sh), a
model of random weights that it made itself. All get the same sentences of random words, each word a subword,
and are told that translations have at least and at most so many subwords; translations are counted. Search:
a beam without length penalty, so many sentences at a time, all threads, no scores or attention asked for.
Some toolkits spend a step of the search on the end of a sentence, others stop before it: see the column of
steps.

Start-up does not count: a toolkit translates a few sentences (one batch; a batch for each thread where it
translates several at a time), then --sentences more, each in a process of its own. Its speed is the
difference in sentences over the difference in seconds; more sentences give it more exactly. CPU time is that
of the process and all that it started. Toolkits take turns, in opposite order every other round. bfloat16 and
int8 are run where they pay on this CPU. Writes a table and the raw figures under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import harness
from decoding_speed import formats
from peers.base import TASKS, Format, Request, Task, Toolkit
from peers.deepwire_cli import Deepwire
from training_speed import PEERS, set_up, version

# Small batches: a single update is made, only for its checkpoint.
SHAPES = {
    "base": replace(TASKS["base"], vocabulary=32_000, batch_tokens=512),
    "tiny": Task("tiny", layers=1, d_model=32, d_ffn=64, heads=2, vocabulary=500, batch_tokens=256),
}
# Tokens that every toolkit adds to its vocabulary by itself.
SPECIAL = 4
# Fewer are not enough for a batch of every toolkit.
FEWEST_LINES = 100


@dataclass(frozen=True)
class Round:
    """So many sentences after the start, and the time that they took."""

    toolkit: str
    sentences: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.sentences / self.seconds


@dataclass(frozen=True)
class Entry:
    """The cells of a row of the table beside its rounds; steps are those of the search for a translation."""

    toolkit: str
    version: str
    parameters: int
    steps: int


@dataclass(frozen=True)
class Row:
    """A toolkit in one number format: a row of the table."""

    toolkit: Toolkit
    format: Format

    @property
    def name(self) -> str:
        default = self.toolkit.formats[0]
        return self.toolkit.name if self.format == default else f"{self.toolkit.name} {self.format.name}"


class Comparison:
    """The models and texts of a run of this script, in a folder."""

    def __init__(self, folder: Path, task: Task, request: Request) -> None:
        self.folder, self.task, self.request = folder, task, request

    def home(self, toolkit: Toolkit) -> Path:
        return self.folder / toolkit.name

    def prepare(self, toolkits: Sequence[Toolkit]) -> dict[str, int]:
        """Make the model of each toolkit; gives their numbers of parameters."""
        corpus = write_corpus(self.task, self.request.length, self.folder)
        found = {}
        for toolkit in toolkits:
            self.home(toolkit).mkdir()
            found[toolkit.name] = toolkit.make(self.home(toolkit), self.task, corpus, self.request)
            print(f"{toolkit.name}: {found[toolkit.name]:,} parameters", flush=True)
        return found

    def round(self, row: Row, more: int) -> Round:
        """A few sentences and then more; the difference counts."""
        fewest = self.request.batch * (self.request.threads if row.toolkit.side_by_side else 1)
        (less, less_cpu), (most, most_cpu) = self.run(row, fewest), self.run(row, fewest + more)
        if most <= less:
            sys.exit(f"error: {row.name}: {more} sentences took no time: give more --sentences")
        return Round(row.name, more, most - less, most_cpu - less_cpu)

    def run(self, row: Row, count: int) -> tuple[float, float]:
        """Translate the first so many sentences, in a process of its own; seconds and CPU seconds."""
        text, output, log = (self.folder / name for name in ("text.txt", "output.txt", "log.txt"))
        write_sentences(self.task, count, self.request.length, text)
        output.unlink(missing_ok=True)
        home = self.home(row.toolkit)
        command = row.toolkit.translate(home, text, output, self.request)
        took = timed([*command, *row.format.arguments], text, log, home)
        found = row.toolkit.translations(output, log.read_text())
        lengths = {len(line.split()) for line in found}
        if len(found) != count or lengths != {self.request.length}:
            sys.exit(
                f"error: {row.name}: {len(found)} translations of {count}, of {sorted(lengths)} subwords"
            )
        return took


def write_corpus(task: Task, length: int, folder: Path) -> Path:
    """Training text in which every word occurs, in sentences of `length` words; both sides are the same."""
    words = vocabulary(task)
    lines = [words[start : start + length] for start in range(0, len(words), length)]
    lines *= -(-FEWEST_LINES // len(lines))
    for language in (task.source, task.target):
        (folder / f"train.{language}").write_text("".join(f"{' '.join(line)}\n" for line in lines))
    return folder / "train"


def write_sentences(task: Task, count: int, length: int, path: Path) -> None:
    """So many sentences of `length` random words; the first ones are always the same."""
    generator, words = random.Random(1), vocabulary(task)
    lines = (" ".join(generator.choices(words, k=length)) for _ in range(count))
    path.write_text("".join(f"{line}\n" for line in lines))


def vocabulary(task: Task) -> list[str]:
    return [f"w{number}" for number in range(task.vocabulary - SPECIAL)]


def timed(command: Sequence[str], text: Path, log: Path, folder: Path) -> tuple[float, float]:
    """Run a command in `folder` that reads `text` and prints into `log`; seconds and CPU seconds."""
    errors = folder / "errors.txt"
    begun = time.perf_counter()
    with text.open() as lines, log.open("w") as output, errors.open("w") as complaints:
        process = subprocess.Popen(command, stdin=lines, stdout=output, stderr=complaints, cwd=folder)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            # Interrupted or told to end: a run left behind would slow whatever comes next.
            process.kill()
            raise
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        said = errors.read_text(errors="replace")[-3000:]
        sys.exit(f"error: {' '.join(command)} failed (status {process.returncode}):\n{said}")
    return seconds, usage.ru_utime + usage.ru_stime


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    task = SHAPES[options.task]
    request = Request(options.beam, options.batch, options.length, options.threads)
    rows = chosen(options)
    threads = str(options.threads)
    os.environ |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    # Some toolkits keep settings in their checkpoints, which torch refuses to read if not told to.
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
    folder = Path(tempfile.mkdtemp(prefix="decoding-toolkits-"))
    try:
        comparison = Comparison(folder, task, request)
        parameters = comparison.prepare(list(dict.fromkeys(row.toolkit for row in rows)))
        entries = [entry(row, parameters, request) for row in rows]
        rounds = []
        for _, row in harness.in_turns(rows, options.rounds):
            rounds.append(comparison.round(row, options.sentences))
            print(rounds[-1], flush=True)
    finally:
        shutil.rmtree(folder)
    print(write_results(task, request, entries, rounds, options))


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("--task", choices=SHAPES, default="base", help="shape of the models")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="sentences at a time")
    parser.add_argument("--length", type=int, default=15, help="subwords of sentences and translations")
    parser.add_argument("--sentences", type=int, default=1024, help="that a round times")
    parser.add_argument("--peers", type=Path, default=Path("~/.cache/deepwire-peers").expanduser())
    parser.add_argument("--only", nargs="*", help="names of rows; default: all that are set up")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[Row]:
    """deepwire, and the peers whose environments are there, in the number formats that pay here."""
    toolkits: list[Toolkit] = [Deepwire(Path(sys.executable))]
    toolkits += [kind(python) for kind, python in set_up(PEERS, options.peers)]
    pay = ("auto", *formats())
    rows = [Row(toolkit, each) for toolkit in toolkits for each in toolkit.formats if each.name in pay]
    found = [row for row in rows if not options.only or row.name in options.only]
    if not found:
        sys.exit(f"error: --only {' '.join(options.only)}: rows are {', '.join(row.name for row in rows)}")
    return found


def entry(row: Row, parameters: Mapping[str, int], request: Request) -> Entry:
    toolkit = row.toolkit
    steps = request.length + toolkit.end_step
    return Entry(row.name, version(toolkit), parameters[toolkit.name], steps)


def write_results(
    task: Task,
    request: Request,
    entries: Sequence[Entry],
    rounds: Sequence[Round],
    options: argparse.Namespace,
) -> str:
    record = {
        "task": asdict(task),
        "request": asdict(request),
        "toolkits": [asdict(entry) for entry in entries],
        "rounds": [asdict(each) for each in rounds],
    }
    about = (
        f"Transformer {task.layers}+{task.layers}, d {task.d_model}, FFN {task.d_ffn}, {task.heads} heads, "
        f"{task.vocabulary:,} subwords, tied embeddings, random weights; sentences and translations of "
        f"{request.length} subwords; {options.rounds} rounds in turn, start-up left out."
    )
    return harness.write(
        options,
        ["decoding_toolkits", task.name],
        f"Decoding speed of toolkits: beam {request.beam}, {request.batch} at a time",
        [about, "", *as_table(entries, rounds)],
        record,
    )


def as_table(entries: Sequence[Entry], rounds: Sequence[Round]) -> list[str]:
    heads = ["toolkit", "version", "parameters", "steps", "sentences/s", "lowest", "highest"]
    heads += ["sentences/CPU-s", "speed of the first row over it", "by round"]
    first = [each.rate for each in rounds if each.toolkit == entries[0].toolkit]
    rows = []
    for entry in entries:
        own = [each for each in rounds if each.toolkit == entry.toolkit]
        rates = [each.rate for each in own]
        middle = statistics.median(rates)
        busy = statistics.median(each.sentences / each.cpu_seconds for each in own)
        ratios = ", ".join(f"{ours / theirs:.2f}" for ours, theirs in zip(first, rates, strict=True))
        speeds = (middle, min(rates), max(rates), busy, statistics.median(first) / middle)
        cells = [f"{speed:.2f}" for speed in speeds]
        rows.append([entry.toolkit, entry.version, f"{entry.parameters:,}", entry.steps, *cells, ratios])
    return harness.table(heads, rows)


if __name__ == "__main__":
    main()
