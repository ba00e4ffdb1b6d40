"""Training speed of deepwire and its peers on one model, one text and one batch size.

    python benchmarks/training_speed.py [--task small] [--rounds 3] [--peers ~/.cache/deepwire-peers] ...

Each toolkit trains through its own command line, in its own environment (benchmarks/peers/setup_*.sh), on the
same subwords of Multi30k (examples/multi30k). The toolkits take turns, so that what else the machine does
slows all alike. A round counts real target tokens a second between two lines of the log, start-up and the
first updates left out. The result is a Markdown table and the raw figures under benchmarks/results/.
deepwire takes the faster number format of the machine; peers are run in float32, and in bfloat16 too where
that is the faster one here and they have it.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import harness
import machine
import sentencepiece
import torch
from peers.base import TASKS, Reading, Task, Toolkit
from peers.deepwire_cli import Deepwire, DeepwireOneProcess, DeepwireTwoProcesses
from peers.eole import Eole, EoleBfloat16
from peers.fairseq import Fairseq
from peers.marian import Marian, MarianBfloat16

from deepwire.ops.precision import autocast_dtype
from deepwire.runfile import load_run_file

HERE = Path(__file__).resolve().parent
TEXT = HERE.parent / "examples" / "multi30k"
# Toolkits and the folders of their environments.
PEERS: tuple[tuple[type[Toolkit], str], ...] = (
    (Eole, "eole"),
    (Fairseq, "fairseq"),
    (Marian, "marian"),
)
PEERS_BFLOAT16: tuple[tuple[type[Toolkit], str], ...] = ((EoleBfloat16, "eole"), (MarianBfloat16, "marian"))
# Seldom: the system holds a process up while it counts gigabytes of pages.
MEMORY_SECONDS = 5.0


@dataclass(frozen=True)
class Limit:
    """The bound of every toolkit: the products that the model needs, at the rate of the fastest one here."""

    operations_per_token: float
    operations_per_second: float
    format: str
    vocabulary: int
    """Subwords that occur in the text, and four special ones: what every toolkit makes of it."""

    @property
    def tokens_per_second(self) -> float:
        return self.operations_per_second / self.operations_per_token


@dataclass(frozen=True)
class Round:
    """One run of one toolkit."""

    toolkit: str
    tokens_per_second: float
    tokens_per_cpu_second: float
    tokens_per_update: float
    peak_gib: float


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    task = TASKS[options.task]
    toolkits = chosen(options)
    folder = Path(tempfile.mkdtemp(prefix="training-speed-"))
    try:
        corpus = subwords(task, folder)
        limit = best_possible(task, corpus, folder, options)
        for toolkit in toolkits:
            home(folder, toolkit).mkdir()
            toolkit.prepare(home(folder, toolkit), task, corpus)
        rounds: list[Round] = []
        for number, toolkit in harness.in_turns(toolkits, options.rounds):
            rounds.append(one_round(toolkit, home(folder, toolkit), number, options))
            print(rounds[-1], flush=True)
    finally:
        shutil.rmtree(folder)
    versions = {toolkit.name: version(toolkit) for toolkit in toolkits}
    print(write_results(task, rounds, versions, limit, options))


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("--task", choices=TASKS, default="small")
    parser.add_argument("--warmup", type=int, default=5, help="updates before the clock starts")
    parser.add_argument("--updates", type=int, default=20, help="updates in all")
    parser.add_argument("--peers", type=Path, default=Path("~/.cache/deepwire-peers").expanduser())
    parser.add_argument("--only", nargs="*", help="names of toolkits; default: deepwire and each peer set up")
    options = parser.parse_args()
    if options.updates % options.warmup or options.updates <= options.warmup:
        parser.error("--updates must be a multiple of --warmup, the interval of the logs")
    return options


def chosen(options: argparse.Namespace) -> list[Toolkit]:
    """deepwire, and the peers whose environments are there."""
    here = Path(sys.executable)
    bfloat16 = autocast_dtype(torch.device("cpu"), "auto") is torch.bfloat16
    narrow = PEERS_BFLOAT16 if bfloat16 else ()
    found: list[Toolkit] = [Deepwire(here)]
    if options.threads > 1:
        # What it does not choose itself on two cores.
        found.append((DeepwireTwoProcesses if bfloat16 else DeepwireOneProcess)(here))
    found += [kind(python) for kind, python in set_up((*PEERS, *narrow), options.peers)]
    return [toolkit for toolkit in found if not options.only or toolkit.name in options.only]


def set_up(peers: Iterable[tuple[type[Toolkit], str]], folder: Path) -> Iterator[tuple[type[Toolkit], Path]]:
    """The peers whose environments are there, with their interpreters; the others are named."""
    for kind, place in peers:
        python = folder / place / "bin" / "python"
        if python.exists():
            yield kind, python
        else:
            print(f"{kind.name} is not set up: benchmarks/peers/setup_{place}.sh {folder / place}")


def best_possible(task: Task, corpus: Path, folder: Path, options: argparse.Namespace) -> Limit:
    """Count the operations of a target token and measure the machine."""
    torch.set_num_threads(options.threads)
    side = folder / "limit"
    side.mkdir()
    Deepwire(Path(sys.executable)).prepare(side, task, corpus)
    text = [Path(f"{corpus}.{language}").read_text() for language in (task.source, task.target)]
    vocabulary = len(set(" ".join(text).split())) + 4
    config = load_run_file(str(side / "run.yaml")).config.model
    source, target = (statistics.mean(len(line.split()) + 1 for line in each.splitlines()) for each in text)
    operations = machine.operations_per_token(config, vocabulary, source, target)
    rates = machine.product_rates().values()
    best = {name: max(each[name] for each in rates) for name in machine.FORMATS}
    fastest = max(best, key=best.__getitem__)
    return Limit(operations, best[fastest] * 1e9, fastest, vocabulary)


def home(folder: Path, toolkit: Toolkit) -> Path:
    return folder / toolkit.name


def subwords(task: Task, folder: Path) -> Path:
    """Write the training text as words that are subwords, so that every toolkit sees the same tokens."""
    lines: dict[str, list[str]] = {}
    for language in (task.source, task.target):
        with gzip.open(TEXT / f"train.{language}.gz", "rt", encoding="utf-8") as file:
            lines[language] = file.read().splitlines()
    model = folder / "subwords"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for side in lines.values() for line in side]),
        model_prefix=str(model),
        model_type="bpe",
        # Every toolkit adds its four special tokens.
        vocab_size=task.vocabulary - 4 + 3,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{model}.model")
    for language, side in lines.items():
        pieces = processor.encode(side, out_type=str)
        (folder / f"train.{language}").write_text("".join(" ".join(line) + "\n" for line in pieces))
    return folder / "train"


def one_round(toolkit: Toolkit, folder: Path, number: int, options: argparse.Namespace) -> Round:
    run = folder / f"run-{number}"
    run.mkdir()
    log = folder / f"log-{number}.txt"
    threads = str(options.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    command = toolkit.command(folder, options.updates, options.warmup, run)
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
        )
        try:
            watch = watched(process, lambda: counted(toolkit, log, run, options))
        except BaseException:
            # Interrupted or told to end: a run left behind would slow whatever comes next.
            process.kill()
            raise
    readings = counted(toolkit, log, run, options)
    if watch.status != 0 or len(readings) < 2 or len(watch.cpu) < 2:
        sys.exit(f"{toolkit.name} failed (status {watch.status}):\n{log.read_text(errors='replace')[-3000:]}")
    first, last = readings[0], readings[-1]
    tokens = last.target_tokens - first.target_tokens
    return Round(
        toolkit.name,
        round(tokens / (last.seconds - first.seconds), 1),
        round(tokens / (watch.cpu[last.update] - watch.cpu[first.update]), 1),
        round(tokens / (last.update - first.update), 1),
        round(watch.peak_gib, 2),
    )


@dataclass
class Watch:
    """A run seen from outside: CPU seconds when each line of the log came, status, memory."""

    cpu: dict[int, float] = field(default_factory=dict)
    status: int = 0
    peak_gib: float = 0.0


def counted(toolkit: Toolkit, log: Path, run: Path, options: argparse.Namespace) -> list[Reading]:
    readings = toolkit.readings(log.read_text(errors="replace"), run)
    return [reading for reading in readings if reading.update >= options.warmup]


def watched(process: subprocess.Popen[bytes], readings: Callable[[], list[Reading]]) -> Watch:
    """Wait for a run, noting its memory, and its CPU time whenever its log says more."""
    watch, spent, most, look = Watch(), 0.0, 0, 0.0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if not pid:
            spent = cpu_seconds(process.pid)
            if time.monotonic() > look:
                most, look = max(most, memory(process.pid)), time.monotonic() + MEMORY_SECONDS
        for reading in readings():
            watch.cpu.setdefault(reading.update, spent)
        if pid:
            watch.status = os.waitstatus_to_exitcode(status)
            # What was there between two looks is known of the first process only.
            watch.peak_gib = max(most / 2**30, usage.ru_maxrss / 2**20)
            return watch
        time.sleep(0.2)


def processes(root: int) -> Iterator[int]:
    """A process and its descendants, as far as they are still there."""
    yield root
    # Of every thread those that it started: proc_pid_task_children(5).
    for started in Path(f"/proc/{root}/task").glob("*/children"):
        with suppress(OSError):
            for child in started.read_text().split():
                yield from processes(int(child))


def cpu_seconds(root: int) -> float:
    """CPU time of all of them, those that have ended too."""
    ticks = 0
    for process in processes(root):
        with suppress(OSError):
            # Behind the name, in brackets: ..., utime, stime, cutime, cstime (proc_pid_stat(5)).
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(root: int) -> int:
    """Bytes in memory of all of them; what several share counts once."""
    found = 0
    for process in processes(root):
        with suppress(OSError):
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
            found += 1024 * int(re.findall(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)[0])
    return found


def version(toolkit: Toolkit) -> str:
    # OpenNMT-py warns on standard error when imported.
    run = subprocess.run(
        [toolkit.python, "-c", toolkit.version_code], capture_output=True, text=True, check=True
    )
    return run.stdout.strip().splitlines()[-1]


def write_results(
    task: Task, rounds: list[Round], versions: dict[str, str], limit: Limit, options: argparse.Namespace
) -> str:
    record = {
        "task": asdict(task),
        "versions": versions,
        "limit": asdict(limit) | {"tokens_per_second": limit.tokens_per_second},
        "updates": options.updates,
        "warmup": options.warmup,
        "rounds": [asdict(found) for found in rounds],
    }
    lines = as_table(task, rounds, versions, limit, options)
    return harness.write(
        options, ["training_speed", task.name], f"Training speed: {task.name}", lines, record
    )


def as_table(
    task: Task, rounds: list[Round], versions: dict[str, str], limit: Limit, options: argparse.Namespace
) -> list[str]:
    heads = ["toolkit", "version", "tokens/s", "lowest", "highest", "share of the limit", "tokens/CPU-s"]
    heads += ["tokens an update", "memory, GiB", "speed of the first row over it, by round"]
    first = [found.tokens_per_second for found in rounds if found.toolkit == next(iter(versions))]
    rows = []
    for name, text in versions.items():
        own = [found for found in rounds if found.toolkit == name]
        rates = [found.tokens_per_second for found in own]
        middle = statistics.median(rates)
        busy = statistics.median(found.tokens_per_cpu_second for found in own)
        update = statistics.mean(found.tokens_per_update for found in own)
        ratios = ", ".join(f"{ours / theirs:.2f}" for ours, theirs in zip(first, rates, strict=True))
        speeds = [f"{speed:.0f}" for speed in (middle, min(rates), max(rates))]
        share, memory = f"{middle / limit.tokens_per_second:.0%}", max(found.peak_gib for found in own)
        rows.append([name, text, *speeds, share, f"{busy:.0f}", f"{update:.0f}", f"{memory:.2f}", ratios])
    return [
        f"Transformer {task.layers}+{task.layers}, d {task.d_model}, FFN {task.d_ffn}, {task.heads} heads, "
        f"{limit.vocabulary} subwords, tied embeddings, dropout {task.dropout}. Text: Multi30k de-en, about "
        f"{task.batch_tokens} target tokens an update. {options.rounds} rounds in turn, updates "
        f"{options.warmup + 1} to {options.updates} of each timed.",
        "",
        *harness.table(heads, rows),
        "",
        f"Limit: {limit.tokens_per_second:.0f} tokens/s, {limit.operations_per_token / 1e6:.1f} MFLOP a "
        f"token at {limit.operations_per_second / 1e9:.0f} GFLOP/s ({limit.format}, the fastest product that "
        "was measured before the rounds); tokens of padding count for nobody.",
    ]


if __name__ == "__main__":
    main()
