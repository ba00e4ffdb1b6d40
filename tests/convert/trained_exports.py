"""Trained models of ten systems in every format that has them; for a night, not for the suite.

    python tests/convert/trained_exports.py [--updates 450] [--lines 200] [--only dlcl] [--keep FOLDER]
        [SETTING ...]

Each system is trained on the bundled Multi30k text and exported to ONNX, to a custom-code folder of
transformers, and to the formats of plain Transformers and of Marian where it is one. Each export is compared
on test text, with BLEU. Prints one line for each; the exit code is 1 if one fails, or if BLEU differs by more
than 0.1. Settings such as training.batch_tokens=800 hold for all trainings. With --keep it can be stopped and
called again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch

from deepwire.cli.main import main as deepwire

MULTI30K = Path(__file__).parents[2] / "examples" / "multi30k"
PLAIN = ("ctranslate2", "huggingface", "argos")
ALL = ("onnx", "huggingface-code")
# What Marian computes beside post-norm.
MARIAN = (
    "model.embeddings={tie: all, norm: false, start: zero}",
    "model.positions={type: sinusoidal, layout: halves}",
)
SAME_BLEU = 0.1
# With these a system says something sensible after a few hundred updates.
QUICK = (
    "data.vocabulary.size=2000",
    "training.label_smoothing=0",
    "training.optimizer=adamw",
    "training.schedule.peak=0.003",
    "training.threads=1",
)


def both(setting: str) -> list[str]:
    """A setting of both stacks."""
    return [f"model.{side}.{setting}" for side in ("encoder", "decoder")]


SYSTEMS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "depth_lstm": (both("connection=depth_lstm"), ALL),
    "dlcl": ([*both("connection=pre_norm"), *both("aggregation=dlcl")], ALL),
    "gtrans": (
        [
            *both("connection=post_norm"),
            *both("layers=4"),
            *both("fusion={type: groups, size: 2}"),
        ],
        ALL,
    ),
    "mhplstm": ([*both("connection=pre_norm"), *both("mixer=mhplstm")], ALL),
    "aan": ([*both("connection=pre_norm"), "model.decoder.mixer=average_attention"], ALL),
    "post": ([*both("connection=post_norm"), "model.embeddings.norm=false"], (*ALL, *PLAIN)),
    "marian": ([*both("connection=post_norm"), *MARIAN], (*ALL, "ctranslate2", "argos", "marian")),
    "ssru": ([*both("connection=post_norm"), *MARIAN, "model.decoder.mixer=ssru"], (*ALL, "marian")),
    "pre": ([*both("connection=pre_norm"), "model.embeddings.norm=false"], (*ALL, *PLAIN)),
    "modern": ([*both("connection=peri_ln"), "model.decoder.mixer=value_residual"], ALL),
}


def main() -> int:
    """Train and export."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=450, help="of each training")
    parser.add_argument("--lines", type=int, default=200, help="of the comparison")
    parser.add_argument("--only", choices=SYSTEMS, help="one system")
    parser.add_argument("--keep", type=Path, help="folder of the runs and exports; else they are removed")
    parser.add_argument("settings", nargs="*", help="of all trainings")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = options.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    for language in ("de", "en"):
        with gzip.open(MULTI30K / f"test_2016_flickr.{language}.gz") as source:
            (folder / f"test.{language}").write_bytes(source.read())
    failures = 0
    try:
        for name in [options.only] if options.only else SYSTEMS:
            failures += tried(name, folder, options.updates, options.lines, options.settings)
    finally:
        if options.keep is None:
            shutil.rmtree(folder)
    print(f"{failures} fail")
    return 1 if failures else 0


def tried(name: str, folder: Path, updates: int, lines: int, others: list[str]) -> int:
    """How many exports of a system fail."""
    settings, formats = SYSTEMS[name]
    run = folder / name
    paths = [f"data.{part}={MULTI30K / file}" for part, file in (("train", "train"), ("valid", "val"))]
    every = [f"training.validation.every={updates}", f"training.checkpoint.every={updates}"]
    steps = [f"training.max_updates={updates}", f"training.schedule.warmup={max(1, updates // 5)}"]
    begun = time.monotonic()
    command = ["train", "demo", f"run={run}", *paths, *settings, *QUICK, *every, *steps, *others]
    if deepwire(command) != 0:
        print(f"FAILED {name}: training", flush=True)
        return 1
    print(f"{name}: trained in {time.monotonic() - begun:.0f} s", flush=True)
    return sum(not exported(run, folder, each, lines) for each in formats)


def exported(run: Path, folder: Path, format_name: str, lines: int) -> bool:
    """Whether a model leaves with equal BLEU."""
    output = folder / f"{run.name}-{format_name}"
    text = ["--text", str(folder / "test.de"), "--reference", str(folder / "test.en"), "--lines", str(lines)]
    code = 0 if output.exists() else 1
    if code:
        shutil.rmtree(output.with_name(f"{output.name}.rejected"), ignore_errors=True)
        code = deepwire(["export", str(run), "-o", str(output), "--format", format_name, *text, "--quiet"])
    here = output if code == 0 else output.with_name(f"{output.name}.rejected")
    if not (here / "parity.json").exists():
        print(f"FAILED {run.name} {format_name}: exit code {code}", flush=True)
        return False
    found = json.loads((here / "parity.json").read_text())["compared"]
    ours, theirs = found["bleu"]
    good = code == 0 and abs(ours - theirs) <= SAME_BLEU
    print(
        f"{'' if good else 'FAILED '}{run.name} {format_name}: BLEU {ours:.2f} and {theirs:.2f}, "
        f"{found['equal']:.1%} alike, at most {found['largest_difference']:.1g} nats",
        flush=True,
    )
    return good


if __name__ == "__main__":
    sys.exit(main())
