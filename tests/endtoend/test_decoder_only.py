"""A decoder-only model from text to translations: trained, interrupted, continued, translated, scored."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

import deepwire
from deepwire.cli.main import main

RUN_FILE = """
data: {source: src, target: trg, train: train, valid: valid, vocabulary: {type: words}}
model:
  architecture: decoder_only
  source_loss: true
  d_model: 32
  heads: 2
  feed_forward: 64
  decoder: {layers: 2, mixer: average_attention, connection: depth_lstm}
training:
  max_updates: 12
  batch_tokens: 200
  log_every: 5
  schedule: {peak: 0.01, warmup: 5}
  validation: {every: 6, bleu: true, bleu_every: 12}
  checkpoint: {every: 6, keep_last: 3}
  device: cpu
  precision: fp32
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    generator = random.Random(1)
    for name, count in (("train", 300), ("valid", 10)):
        lines = [" ".join(generator.choices("abcdef", k=generator.randint(1, 8))) for _ in range(count)]
        (tmp_path / f"{name}.src").write_text("".join(f"{line}\n" for line in lines))
        (tmp_path / f"{name}.trg").write_text("".join(f"{line.upper()}\n" for line in lines))
    (tmp_path / "toy.yaml").write_text(RUN_FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_text_to_translations(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also: interrupted and continued, the run ends with the same parameters."""
    assert main(["train", "toy.yaml", "run=straight"]) == 0
    assert main(["train", "toy.yaml", "run=stopped", "training.max_updates=6"]) == 0
    assert main(["train", "toy.yaml", "run=stopped"]) == 0
    weights = "checkpoints/update-000012/model.safetensors"
    assert (toy / "straight" / weights).read_bytes() == (toy / "stopped" / weights).read_bytes()
    records = [json.loads(line) for line in (toy / "straight/metrics.jsonl").read_text().splitlines()]
    assert any("bleu" in record for record in records)

    model = deepwire.load("straight@last")
    sources = ["a b c", "f", "d e d e d e d e", ""]
    for beam in (1, 3):
        search = model.with_search(beam=beam)
        translations = search.translate(sources)
        assert translations == [search.translate([source])[0] for source in sources]
    scores = [score.log_probability for score in model.score(zip(sources, ["A B C", "F"], strict=False))]
    assert all(math.isfinite(score) and score < 0 for score in scores)

    (toy / "text.src").write_text("a b c\n")
    capsys.readouterr()
    assert main(["export", "straight@last", "-o", "out", "--to", "ctranslate2", "--unchecked"]) == 4
    assert "decoder_only" in capsys.readouterr().err
    assert main(["inspect", "toy.yaml", "--vocabulary-size", "20"]) == 0
    shown = capsys.readouterr().out
    assert "architecture: decoder_only" in shown
    assert "encoder:" not in shown


def test_an_encoder_is_refused_with_the_run_file(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toy.yaml", "model.encoder.layers=3"]) == 2
    assert "model.encoder: has no effect" in capsys.readouterr().err
    assert not (toy / "runs").exists()
