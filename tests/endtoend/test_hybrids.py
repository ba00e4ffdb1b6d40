"""Recurrences of one size and self-attention in one model, on real text: learning, resume, translations."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import deepwire

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from forked import deepwire_command

pytestmark = pytest.mark.slow
RUN_FILE = """
data:
  source: de
  target: en
  train: train
  valid: valid
  vocabulary: {type: bpe, size: 600, joint: true}
model:
  d_model: 32
  heads: 2
  feed_forward: 64
  dropout: 0.1
  encoder: {layers: 3, mixer: [gla, min_lstm, self_attention]}
  decoder: {layers: 6, mixer: [ssru, mamba2, self_attention, gated_deltanet, mlstm, min_gru]}
training:
  max_updates: 12
  batch_tokens: 600
  precision: fp32
  schedule: {type: constant, peak: 0.01, warmup: 5}
  validation: {every: 6, bleu: true, max_sentences: 8}
  checkpoint: {every: 6}
  log_every: 2
decoding: {beam: 3, max_length_ratio: 1, max_length_extra: 5}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, multi30k: Mapping[str, Sequence[str]]) -> Path:
    """A folder with a small corpus, a finished run, and another that was stopped in the middle."""
    folder = tmp_path_factory.mktemp("hybrids")
    for language, lines in multi30k.items():
        for name, part in (("train", lines[:300]), ("valid", lines[300:316])):
            (folder / f"{name}.{language}").write_text("\n".join(part) + "\n", encoding="utf-8")
    for name, *options in (("whole",), ("halved", "training.stop_after=6"), ("halved",)):
        (folder / f"{name}.yaml").write_text(RUN_FILE)
        result = deepwire_command("train", f"{name}.yaml", *options, cwd=folder)
        assert result.returncode == 0, result.stderr
    return folder


def entries(run: Path) -> list[tuple[object, ...]]:
    """The losses and scores that the run has logged."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["kind"], line.get("update"), line.get("nll"), line.get("bleu")) for line in lines]


def test_it_learns(trained: Path) -> None:
    losses = [entry[2] for entry in entries(trained / "runs/whole") if entry[0] == "train"]
    assert losses[-1] < losses[0] - 0.5


def test_an_interrupted_run_goes_on_exactly(trained: Path) -> None:
    assert entries(trained / "runs/halved") == entries(trained / "runs/whole")
    first, second = (
        next((trained / "runs" / name).glob("checkpoints/*12*")) / "model.safetensors"
        for name in ("whole", "halved")
    )
    assert first.read_bytes() == second.read_bytes()


def test_translating_and_scoring(trained: Path) -> None:
    """By command and from Python, with beams of any width, and with weights in 8 bits."""
    source = (trained / "valid.de").read_text(encoding="utf-8")
    result = deepwire_command("translate", "runs/whole", "--precision", "fp32", cwd=trained, stdin=source)
    assert result.returncode == 0, result.stderr
    model = deepwire.load(trained / "runs/whole", precision="fp32")
    assert model.translate(source.splitlines()) == result.stdout.splitlines()
    for options in (("--beam", "1"), ("--precision", "int8"), ("--precision", "bf16")):
        result = deepwire_command("translate", "runs/whole", *options, cwd=trained, stdin=source)
        assert result.returncode == 0, result.stderr
        assert len(result.stdout.splitlines()) == 16
    scored = deepwire_command(
        "score", "runs/whole", "--source", "valid.de", "--target", "valid.en", cwd=trained
    )
    assert scored.returncode == 0, scored.stderr
    assert all(float(line) < 0 for line in scored.stdout.split())
