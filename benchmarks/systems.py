"""The main systems side by side: the same text, the same number of updates, one table.

    python benchmarks/systems.py [--updates 1600] [--only pre-norm ...] [--runs runs/systems] [--json FILE]

Each system is the demo recipe (Multi30k, German to English, 3 + 3 layers of width 128) with another
connection, mixer, aggregation or fusion, trained, timed and scored through the command line as a user would.
An interrupted run goes on where it stopped. BLEU is sacrebleu's on test_2016_flickr; decoding speed is that
of translating this file with the beam of the recipe, loading left out: the median of rounds in turns.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import machine
import torch

import deepwire

HERE = Path(__file__).resolve().parent
TEXT = HERE.parent / "examples" / "multi30k"
TEST = "test_2016_flickr"


def both(*settings: str) -> tuple[str, ...]:
    """The same settings for encoder and decoder."""
    return tuple(f"model.{side}.{setting}" for setting in settings for side in ("encoder", "decoder"))


SYSTEMS: Mapping[str, Sequence[str]] = {
    "post-norm": both("connection=post_norm"),
    "pre-norm": both("connection=pre_norm"),
    "depth-wise LSTM": both("connection=depth_lstm"),
    "DLCL": both("connection=pre_norm", "aggregation=dlcl"),
    "GTrans": (
        *both("connection=post_norm"),
        "model.encoder.fusion={type: groups, size: 1}",
        "model.decoder.fusion={type: groups, size: 1}",
    ),
    "MHPLSTM": (*both("connection=pre_norm"), "model.decoder.mixer=mhplstm"),
    "AAN": (*both("connection=pre_norm"), "model.decoder.mixer=average_attention"),
}


def main() -> None:
    options = arguments()
    options.runs.mkdir(parents=True, exist_ok=True)
    names = options.only or list(SYSTEMS)
    rows = []
    for name in names:
        rows.append(measure(name, options))
        print(json.dumps(rows[-1]), flush=True)
    for row, speeds in zip(rows, decoded(names, options), strict=True):
        row["decoding_sentences_per_second"] = statistics.median(speeds)
        row["decoding_rounds"] = speeds
    print(table(rows))
    if options.json is not None:
        settings = {"updates": options.updates, "threads": options.threads, "set": options.set}
        record = {"machine": machine.description(), "options": settings, "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=1600)
    parser.add_argument("--rounds", type=int, default=3, help="of decoding, in turns")
    parser.add_argument("--only", nargs="*", choices=SYSTEMS)
    parser.add_argument("--runs", type=Path, default=Path("runs/systems"))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="more settings for all")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


def measure(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Train, translate and score one system."""
    run = directory(name, options)
    settings = [*SYSTEMS[name], *options.set]
    command(
        "train",
        "demo",
        f"run={run}",
        f"training.max_updates={options.updates}",
        f"training.threads={options.threads}",
        "training.optimizer=adamw",
        "training.schedule.peak=0.005",
        *settings,
        log=run.with_suffix(".log"),
    )
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [record for record in records if record["kind"] == "train"]
    output = run.with_suffix(".txt")
    command("translate", str(run), "--input", str(TEXT / f"{TEST}.de.gz"), "--output", str(output))
    scored = command("evaluate", str(output), "--reference", str(TEXT / f"{TEST}.en.gz"), "--json")
    counted = command("inspect", str(run), "--json")
    return {
        "system": name,
        "parameters": json.loads(counted)["parameters"],
        "training_tokens_per_second": statistics.median(
            record["tokens_per_second"] for record in trained if record["update"] > 1
        ),
        "bleu": json.loads(scored)["systems"][0]["scores"][0]["score"],
        "loss": trained[-1]["loss"],
    }


def decoded(names: Sequence[str], options: argparse.Namespace) -> list[list[float]]:
    """Sentences a second of each system in each round; the systems take turns."""
    torch.set_num_threads(options.threads)
    with gzip.open(TEXT / f"{TEST}.de.gz", "rt", encoding="utf-8") as file:
        source = file.read().splitlines()
    models = [deepwire.load(directory(name, options)) for name in names]
    speeds: list[list[float]] = [[] for _ in models]
    for model in models:
        model.translate(source[:64])
    for _ in range(options.rounds):
        for model, found in zip(models, speeds, strict=True):
            begun = time.perf_counter()
            model.translate(source)
            found.append(len(source) / (time.perf_counter() - begun))
    return speeds


def directory(name: str, options: argparse.Namespace) -> Path:
    """The run of a system."""
    run: Path = options.runs / name.replace(" ", "-").lower()
    return run


def command(*arguments: str, log: Path | None = None) -> str:
    """Run deepwire's command line; its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "deepwire", *arguments], capture_output=True, text=True, check=False
    )
    if log is not None:
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        raise SystemExit(f"deepwire {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """A Markdown table."""
    lines = [
        "| system | parameters | training, target tokens/s | decoding, sentences/s | BLEU |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['system']} | {row['parameters']:,} | {row['training_tokens_per_second']:,.0f} "
        f"| {row['decoding_sentences_per_second']:.1f} | {row['bleu']:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
