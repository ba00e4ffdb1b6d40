"""Two tiny language models side by side, on a text whose perplexity `deepwire perplexity` says, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import deepwire
from deepwire.cli.main import main

RUN_FILE = """
task: language_model
data:
  target: en
  train: train
  valid: valid
  test: test
  text: {block: 24}
  vocabulary: {type: words, min_count: 2}
model:
  d_model: 16
  heads: 2
  feed_forward: 32
  decoder: {layers: 1}
training:
  max_updates: 8
  batch_tokens: 400
  log_every: 4
  schedule: {peak: 0.01, warmup: 2}
  validation: {every: 4}
  checkpoint: {every: 8}
  device: cpu
  precision: fp32
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, multi30k: Mapping[str, Sequence[str]]) -> Path:
    folder = tmp_path_factory.mktemp("language-models")
    lines = multi30k["en"]
    for name, part in (("train", lines[:300]), ("valid", lines[300:340]), ("test", lines[340:380])):
        (folder / f"{name}.en").write_text("\n".join(part) + "\n")
    (folder / "run.yaml").write_text(RUN_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "run.yaml", "run=runs/a", "-q"]) == 0
        assert main(["train", "run.yaml", "run=runs/b", "-q", "training.max_updates=1"]) == 0
        documents = ["run=runs/documents", "-q", "data.text.unit=documents", "training.max_updates=1"]
        assert main(["train", "run.yaml", *documents]) == 0
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_perplexities_are_those_of_the_command(folder: Path, analyze) -> None:
    finding = analyze("compare", "runs/a", "runs/b", "--device", "cpu", "--precision", "fp32")
    tables = {table["title"]: table for table in finding["tables"]}
    rows = tables["Perplexity"]["rows"]
    lines = (folder / "test.en").read_text().splitlines()
    for name, row in zip("ab", rows, strict=True):
        score = deepwire.load(f"runs/{name}", "cpu", "fp32").perplexity(lines)
        assert row[:2] == [name, score.tokens]
        expected = [score.perplexity, score.word_perplexity, score.byte_perplexity, score.bits_per_byte]
        assert row[2:6] == pytest.approx(expected)
    assert rows[0][6:] == [None] * 4
    difference, low, high, p = rows[1][6:]
    assert difference == pytest.approx(rows[1][5] - rows[0][5])
    assert low <= difference <= high
    assert difference > 0  # what learned longer is better
    assert p < 0.05
    assert any("b: read in" in note for note in finding["notes"])
    names = [figure["name"] for figure in finding["figures"]]
    assert names == ["scores", "training", "validation"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runs/b", "-s", "test.en", "-r", "test.en"], "--source is for models that translate"),
        (["runs/documents"], "data.text.unit differs"),
        (["runs/b", "-r", "empty.en"], "has no line that is not empty"),
    ],
)
def test_what_cannot_be_compared(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    (folder / "empty.en").write_text("\n\n")
    assert main(["analyze", "compare", "runs/a", *arguments]) != 0
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_signals_of_a_language_model_speak_of_no_encoder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "signal", "runs/a", "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    assert "Signals of runs/a" in shown.out
    assert "blocks" in shown.out
    for word in ("encoder", "reference", "pairs"):
        assert word not in shown.out


def test_gates_of_a_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["run=runs/gates", "-q", "model.decoder.connection=depth_lstm", "training.max_updates=1"]
    assert main(["train", "run.yaml", *settings]) == 0
    assert main(["analyze", "gates", "runs/gates", "--sentences", "7", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "7 documents" in shown
    assert "Decoder, depth-wise LSTM" in shown
    assert "reference" not in shown
