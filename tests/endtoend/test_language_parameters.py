"""Parameters of each target language, from raw text to raw text: norms, transform, embeddings, biases."""

from __future__ import annotations

import io
import json
import random
import sys
from pathlib import Path

import pytest
import torch

import deepwire
from deepwire.checkpoint.store import load_model
from deepwire.cli.main import main

RUN_FILE = """
data:
  directions: [{between: [en], and: [de, fr]}]
  train: train
  valid: valid
  tag: none
  vocabulary: {type: words}
model:
  d_model: 16
  heads: 2
  feed_forward: 32
  encoder: {layers: 1, connection: depth_lstm}
  decoder: {layers: 1, connection: depth_lstm}
  languages: {norm: true, transform: identity, embedding: both, output_bias: true}
training:
  max_updates: 60
  batch_tokens: 400
  schedule: {type: constant, peak: 0.02, warmup: 5}
  checkpoint: {every: 30}
  validation: {every: 30}
  device: cpu
  precision: fp32
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Letters in English; the same in capitals in German, and turned around in French."""
    generator = random.Random(1)
    for name, count in (("train", 150), ("valid", 8)):
        lines = [generator.choices("abcdef", k=generator.randint(2, 5)) for _ in range(count)]
        texts = {
            "en": [" ".join(words) for words in lines],
            "de": [" ".join(words).upper() for words in lines],
            "fr": [" ".join(reversed(words)) for words in lines],
        }
        for language, rows in texts.items():
            (tmp_path / f"{name}.{language}").write_text("".join(f"{row}\n" for row in rows))
    (tmp_path / "run.yaml").write_text(RUN_FILE)
    monkeypatch.chdir(tmp_path)
    precision = torch.get_float32_matmul_precision()
    yield tmp_path
    torch.set_float32_matmul_precision(precision)
    torch.set_flush_denormal(False)


def test_train_inspect_average_translate(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any tag the parameters alone say which language it is; one input may ask for several."""
    assert main(["train", "run.yaml"]) == 0
    assert main(["average", "runs/run", "--last", "2", "--output", "mean"]) == 0
    capsys.readouterr()
    assert main(["inspect", "runs/run", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["languages"] == 3
    assert record["parts"]["language transform"] == 3 * 16 * 16

    loaded = load_model(folder / "mean")
    assert loaded.languages == ("de", "en", "fr")
    norm = dict(loaded.model.named_parameters())["decoder.connection.norms.0.weight"]
    assert norm.shape == (3, 16)
    assert not torch.equal(norm[0], norm[1])

    def translate(*options: str, lines: list[str]) -> list[str]:
        text = io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode()))
        monkeypatch.setattr(sys, "stdin", text)
        assert main(["translate", "mean", "--precision", "fp32", *options]) == 0
        return capsys.readouterr().out.splitlines()

    sources = ["a b c", "f a", "b d e e", "c"]
    german, french = (translate("--to", to, lines=sources) for to in ("de", "fr"))
    assert german != french
    assert all(line == line.upper() for line in german)
    mixed = [f"{to}\t{source}" for source in sources for to in ("fr", "de")]
    found = translate("--language-column", "1", lines=mixed)
    assert found[::2] == french
    assert found[1::2] == german
    assert translate("--to", "fr", "--from", "de", lines=["A B"]) != [""]
    pairs = [("a b c", german[0])]
    scored = deepwire.load("mean").score(pairs, to="de")
    assert len(list(scored)) == 1
