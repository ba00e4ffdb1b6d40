"""Makes the small model of the present format that later versions must read; run once for a format.

    python tests/checkpoint/make_stored_model.py NAME

Trains on a few sentences of examples/multi30k until it knows them by heart, and writes the model to
tests/checkpoint/stored/NAME/model and what it says to tests/checkpoint/stored/NAME/expected.json. A folder
that is there already is never touched: what was released stays.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path

from deepwire import __version__
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import read_config
from deepwire.cli.main import main
from deepwire.decoding.model_loading import load
from deepwire.io.atomic import write_json

STORED = Path(__file__).resolve().parent / "stored"
TEXT = Path(__file__).resolve().parents[2] / "examples" / "multi30k"
SENTENCES, LONGEST = 8, 45
RUN_FILE = """
seed: 1
data:
  source: de
  target: en
  train: text
  valid: text
  vocabulary: {type: bpe, size: 130, byte_fallback: false}
model:
  d_model: 16
  heads: 2
  feed_forward: 32
  dropout: 0
  encoder: {layers: 2, aggregation: dlcl}
  decoder: {layers: 1, connection: depth_lstm}
training:
  max_updates: 1500
  batch_tokens: 400
  label_smoothing: 0
  log_every: 250
  schedule: {peak: 0.01, warmup: 50}
  validation: {every: 500}
  precision: fp32
  device: cpu
decoding: {beam: 3}
"""


def make(name: str) -> None:
    """Train, store, and write down what the model says."""
    target = STORED / name
    if target.exists():
        sys.exit(f"error: {target} is there already")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sides = write_text(folder)
        (folder / "run.yaml").write_text(RUN_FILE)
        if main(["train", str(folder / "run.yaml"), f"run={folder / 'run'}"]) != 0:
            sys.exit(1)
        shutil.copytree(find_model(str(folder / "run")), target / "model")
    for unneeded in ("optimizer.safetensors", "state.json"):
        (target / "model" / unneeded).unlink()
    forget(target / "model", ("optimizer.safetensors", "state.json"))
    translator = load([str(target / "model")], "cpu", "fp32")
    found = list(translator.translations(sides["de"]))
    expected = {
        "version": __version__,
        "format": read_config(target / "model")["format"],
        "sources": sides["de"],
        "translations": [one.text for one in found],
        "scores": [one.score for one in found],
    }
    write_json(target / "expected.json", expected)
    known = sum(one.text == text for one, text in zip(found, sides["en"], strict=True))
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: {known} of {SENTENCES} sentences known by heart, {size:,} bytes")


def write_text(folder: Path) -> dict[str, list[str]]:
    """The first short sentences of the training text, by side."""
    lines = {
        side: gzip.decompress((TEXT / f"train.{side}.gz").read_bytes()).decode().split("\n")
        for side in ("de", "en")
    }
    short = [place for place, line in enumerate(lines["de"]) if 20 < len(line) < LONGEST][:SENTENCES]
    sides = {side: [lines[side][place] for place in short] for side in lines}
    for side, chosen in sides.items():
        (folder / f"text.{side}").write_text("".join(f"{line}\n" for line in chosen), encoding="utf-8")
    return sides


def forget(model: Path, names: tuple[str, ...]) -> None:
    """Take files that were removed out of the manifest."""
    path = model / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for name in names:
        del manifest["files"][name]
    write_json(path, manifest)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(sys.argv[1])
