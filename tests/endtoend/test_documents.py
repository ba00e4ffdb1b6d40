"""Documents from text to translations: trained, interrupted, continued, evaluated, translated and scored."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import deepwire
from deepwire.cli.main import main

RUN_FILE = """
data:
  source: src
  target: trg
  train: train
  valid: valid
  test: valid
  vocabulary: {type: words}
  context: {source: 1, target: 1}
model: {d_model: 32, heads: 2, feed_forward: 64, dropout: 0, encoder: {layers: 1}, decoder: {layers: 1}}
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
PRONOUNS = {"a": "A", "b": "B", "c": "C"}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Only the line in front says what `x` is in a line: `a` makes it `A`."""
    generator = random.Random(1)
    for name, count in (("train", 200), ("valid", 8)):
        source, target = [], []
        for _ in range(count):
            word = generator.choice("abc")
            source += [f"see {word}"]
            target += [f"look {PRONOUNS[word]}"]
            for _ in range(generator.randint(1, 3)):
                verb = generator.choice("klm")
                source += [f"x {verb}"]
                target += [f"{PRONOUNS[word]} {verb.upper()}"]
            source += [""]
            target += [""]
        (tmp_path / f"{name}.src").write_text("".join(f"{line}\n" for line in source))
        (tmp_path / f"{name}.trg").write_text("".join(f"{line}\n" for line in target))
    (tmp_path / "toy.yaml").write_text(RUN_FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder_only"])
def test_from_documents_to_translations(
    toy: Path, capsys: pytest.CaptureFixture[str], architecture: str
) -> None:
    """Also: interrupted and continued, the run ends with the same parameters."""
    if architecture == "decoder_only":
        text = RUN_FILE.replace("encoder: {layers: 1}, ", "architecture: decoder_only, source_loss: true, ")
        text = text.replace("{layers: 1}}", "{layers: 1, mixer: average_attention, connection: depth_lstm}}")
        (toy / "toy.yaml").write_text(text)
    assert main(["train", "toy.yaml", "run=straight"]) == 0
    assert main(["train", "toy.yaml", "run=stopped", "training.max_updates=6"]) == 0
    assert main(["train", "toy.yaml", "run=stopped"]) == 0
    weights = "checkpoints/update-000012/model.safetensors"
    assert (toy / "straight" / weights).read_bytes() == (toy / "stopped" / weights).read_bytes()
    model = deepwire.load("straight@last", precision="fp32")
    lines = (toy / "valid.src").read_text().splitlines()
    capsys.readouterr()
    assert main(["translate", "straight@last", "-i", "valid.src", "--precision", "fp32", "-q"]) == 0
    found = capsys.readouterr().out.splitlines()
    assert found == model.translate(lines)
    assert [not line for line in found] == [not line for line in lines]
    pairs = zip(lines, (toy / "valid.trg").read_text().splitlines(), strict=True)
    scores = [score.log_probability for score in model.score(pairs) if score.flag is None]
    nll = -sum(scores) / (3 * len(scores))  # two words and the end symbol
    record = json.loads((toy / "straight/metrics.jsonl").read_text().splitlines()[-1])
    assert record["nll"] == pytest.approx(nll, rel=1e-4)
    assert main(["evaluate", "--model", "straight@last", "--metric", "chrf", "--precision", "fp32"]) == 0
    assert main(["export", "straight@last", "-o", "out", "--to", "ctranslate2", "--unchecked"]) == 4
    assert "was trained with data.context" in capsys.readouterr().err
    assert main(["distill", "straight@last", "-i", "valid.src", "-o", "made"]) == 2
    assert "reads documents in their order" in capsys.readouterr().err
    assert main(["train", "toy.yaml", "run=straight", "data.context.source=2"]) == 2
    assert "data.context.source: 1 -> 2" in capsys.readouterr().err


def test_a_model_of_sentences_goes_on_with_documents(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = ["data.context.source=0", "data.context.target=0", "training.max_updates=1"]
    assert main(["train", "toy.yaml", "run=sentences", *sentences]) == 0
    begin = ["training.start_from=sentences", "training.max_updates=1"]
    assert main(["train", "toy.yaml", "run=documents", *begin]) == 0
    log = (toy / "documents/log.txt").read_text()
    assert "started from sentences" in log
    assert "begin untrained" not in log


@pytest.mark.slow
def test_what_only_the_line_in_front_says_is_learned(toy: Path) -> None:
    assert main(["train", "toy.yaml", "run=long", "training.max_updates=200"]) == 0
    model = deepwire.load("long@last", precision="fp32")
    lines = ["see a", "x k", "x l", "", "see b", "x k"]
    assert model.translate(lines) == ["look A", "A K", "A L", "", "look B", "B K"]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("data.context.sources=1", "data.context.source"),
        ("data.context.target=0 data.context.loss=all", "targets have no context; set data.context.target"),
    ],
)
def test_wrong_settings_are_refused_with_the_run_file(
    toy: Path, capsys: pytest.CaptureFixture[str], setting: str, reason: str
) -> None:
    assert main(["train", "toy.yaml", *setting.split()]) == 2
    assert reason in capsys.readouterr().err
    assert not (toy / "runs").exists()
