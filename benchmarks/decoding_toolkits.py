"""Decoding speed of deepwire and of other toolkits, with models of one shape.

    python benchmarks/decoding_toolkits.py [--rounds 3] [--peers ~/.cache/deepwire-peers] ...
    python benchmarks/decoding_toolkits.py --task tiny --batch 8 --rounds 1 --seconds 5     # does it work?

Each toolkit translates through its own command line, in its own environment (benchmarks/peers/setup_*.sh), a
model of random weights that it made itself. All get the same sentences of random words, each word a subword,
and are told that translations have at least and at most so many subwords; what comes out is counted. Search:
a beam without length penalty, so many sentences at a time, all threads, no scores or attention asked for.
Some toolkits spend a step of the search on the end of a sentence, others stop before it: see the column of
steps.

Start-up does not count: a toolkit translates a few sentences (one batch; a batch for each thread where it
translates several at a time), then more of them, each in a process of its own, and its speed is the
difference in sentences over the difference in seconds. How many more is found once for each toolkit, so that
the second run takes about --seconds longer than the first, or more. CPU time is that of the process and all
that it started, and is counted in the same way. Toolkits take turns, in opposite order every other round.
bfloat16 and int8 are run where they pay on this CPU. Writes a Markdown table and the raw figures under
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import harness
from decoding_speed import formats
from peers.base import TASKS, Task, Toolkit
from peers.decoding.base import Decoder, Format, Request
from peers.decoding.commands import Took, difference, timed
from peers.decoding.deepwire_cli import DeepwireDecoder
from peers.decoding.eole import EoleDecoder
from peers.decoding.fairseq import FairseqDecoder
from peers.decoding.joeynmt import JoeyNMTDecoder
from peers.decoding.marian import MarianDecoder
from peers.decoding.opennmt import OpenNMTDecoder
from peers.decoding.words import write_corpus, write_sentences
from training_speed import PEERS, set_up, version

HERE = Path(__file__).resolve().parent
# Small batches: a single update is made, only for its checkpoint.
SHAPES = {
    "base": replace(TASKS["base"], vocabulary=32_000, batch_tokens=512),
    "tiny": Task("tiny", layers=1, d_model=32, d_ffn=64, heads=2, vocabulary=500, batch_tokens=256),
}
DECODERS: Mapping[type[Toolkit], type[Decoder]] = {
    kind.trainer: kind
    for kind in (OpenNMTDecoder, JoeyNMTDecoder, EoleDecoder, FairseqDecoder, MarianDecoder)
}
# A trial is long enough from this share of a round on; else it is made longer, by this factor at most.
ENOUGH = 0.75
LARGEST_STEP = 8
# Times are not exact: as a share of the least that is possible, what is believed, and how often it is tried.
POSSIBLE = 0.95
TRIES = 3


@dataclass(frozen=True)
class Round:
    """So many sentences after the start, and what they took."""

    toolkit: str
    sentences: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.sentences / self.seconds


@dataclass(frozen=True)
class Entry:
    """What a row of the table says beside its rounds; steps are those of the search for a translation."""

    toolkit: str
    version: str
    parameters: int
    steps: int


@dataclass(frozen=True)
class Row:
    """A toolkit in one number format: a row of the table."""

    decoder: Decoder
    format: Format

    @property
    def name(self) -> str:
        default = self.decoder.formats[0]
        return self.decoder.name if self.format == default else f"{self.decoder.name} {self.format.name}"


class Comparison:
    """The models and texts of a run of this script, in a folder."""

    def __init__(self, folder: Path, task: Task, request: Request) -> None:
        self.folder, self.task, self.request = folder, task, request

    def home(self, decoder: Decoder) -> Path:
        return self.folder / decoder.name

    def prepare(self, decoders: Sequence[Decoder]) -> dict[str, int]:
        """Make the model of each toolkit; gives their numbers of parameters."""
        corpus = write_corpus(self.task, self.request.length, self.folder)
        found = {}
        for decoder in decoders:
            self.home(decoder).mkdir()
            found[decoder.name] = decoder.make(self.home(decoder), self.task, corpus, self.request)
            print(f"{decoder.name}: {found[decoder.name]:,} parameters", flush=True)
        return found

    def fewest(self, row: Row) -> int:
        """What a toolkit translates at a time."""
        return self.request.batch * (self.request.threads if row.decoder.side_by_side else 1)

    def enough(self, row: Row, seconds: float) -> int:
        """How many more sentences than the fewest take about so long, found by trial.

        A start takes a little longer or shorter each time, and threads that wait for others take CPU time:
        little can be told from a short trial, so that one must take nearly as long as a round. What counts is
        the smaller of seconds and CPU seconds of a thread.
        """
        first, more = self.run(row, self.fewest(row)), self.fewest(row)
        while True:
            took = difference(first, self.run(row, self.fewest(row) + more))
            found = min(took.seconds, took.cpu_seconds / self.request.threads)
            if found >= ENOUGH * seconds:
                return more
            more *= max(2, min(LARGEST_STEP, math.ceil(seconds / found))) if found > 0 else LARGEST_STEP

    def round(self, row: Row, more: int) -> Round:
        """Measured again where the first start was held up: threads cannot work for longer than it took."""
        fewest = self.fewest(row)
        for _ in range(TRIES):
            took = difference(self.run(row, fewest), self.run(row, fewest + more))
            if took.seconds > POSSIBLE * took.cpu_seconds / self.request.threads:
                return Round(row.name, more, took.seconds, took.cpu_seconds)
        sys.exit(f"error: {row.name}: {more} sentences took less than their CPU time: give more --seconds")

    def run(self, row: Row, count: int) -> Took:
        """Translate the first so many sentences, in a process of its own."""
        text, output, log = (self.folder / name for name in ("text.txt", "output.txt", "log.txt"))
        write_sentences(self.task, count, self.request.length, text)
        output.unlink(missing_ok=True)
        home = self.home(row.decoder)
        command = row.decoder.command(home, text, output, self.request)
        took = timed([*command, *row.format.arguments], text, log, home)
        require_lengths(row.name, row.decoder.translations(output, log.read_text()), count, self.request)
        return took


def require_lengths(name: str, translations: Sequence[str], count: int, request: Request) -> None:
    """See that there are as many translations as sentences, all of the length that was asked for."""
    if len(translations) != count:
        sys.exit(f"error: {name}: {len(translations)} translations of {count} sentences")
    for line, translation in enumerate(translations, 1):
        if len(translation.split()) != request.length:
            found = len(translation.split())
            sys.exit(f"error: {name}: translation {line} has {found} subwords, not {request.length}")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    task = shape(options)
    request = Request(options.beam, options.batch, options.length, options.threads)
    rows = chosen(options)
    threads = str(options.threads)
    os.environ |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    # Some toolkits keep settings in their checkpoints, which torch refuses to read if not told to.
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
    folder = Path(tempfile.mkdtemp(prefix="decoding-toolkits-"))
    try:
        comparison = Comparison(folder, task, request)
        parameters = comparison.prepare(list(dict.fromkeys(row.decoder for row in rows)))
        entries = [entry(row, parameters, request) for row in rows]
        more = {row.name: comparison.enough(row, options.seconds) for row in rows}
        rounds = []
        for _, row in harness.in_turns(rows, options.rounds):
            rounds.append(comparison.round(row, more[row.name]))
            print(rounds[-1], flush=True)
    finally:
        shutil.rmtree(folder)
    print(write_results(task, request, entries, rounds, options))


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("--task", choices=SHAPES, default="base", help="shape of the models")
    parser.add_argument("--layers", type=int, help="of each side; that of the task")
    parser.add_argument("--vocabulary-size", type=int, help="that of the task")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="sentences at a time")
    parser.add_argument("--length", type=int, default=15, help="subwords of sentences and translations")
    parser.add_argument("--seconds", type=float, default=12.0, help="that a round should time")
    parser.add_argument("--peers", type=Path, default=Path("~/.cache/deepwire-peers").expanduser())
    parser.add_argument("--only", nargs="*", help="names of rows; default: all that are set up")
    options = parser.parse_args()
    if options.seconds <= 0:
        parser.error("--seconds must be more than 0")
    return options


def shape(options: argparse.Namespace) -> Task:
    task = SHAPES[options.task]
    return replace(
        task, layers=options.layers or task.layers, vocabulary=options.vocabulary_size or task.vocabulary
    )


def chosen(options: argparse.Namespace) -> list[Row]:
    """deepwire, and the peers whose environments are there, in the number formats that pay here."""
    decoders: list[Decoder] = [DeepwireDecoder(Path(sys.executable))]
    decoders += [DECODERS[kind](python) for kind, python in set_up(PEERS, options.peers)]
    pay = ("auto", *formats())
    rows = [Row(decoder, each) for decoder in decoders for each in decoder.formats if each.name in pay]
    found = [row for row in rows if not options.only or row.name in options.only]
    if not found:
        sys.exit(f"error: --only {' '.join(options.only)}: rows are {', '.join(row.name for row in rows)}")
    return found


def entry(row: Row, parameters: Mapping[str, int], request: Request) -> Entry:
    decoder = row.decoder
    steps = request.length + decoder.end_step
    return Entry(row.name, version(decoder.training), parameters[decoder.name], steps)


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
