"""From a teacher to a student, and from a model to a better one, on real text by the commands of users."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from deepwire.cli.main import main

RUN_FILE = """
data:
  source: de
  target: en
  train: train
  valid: valid
  vocabulary: {type: bpe, size: 500, joint: true}
model:
  d_model: 32
  heads: 2
  feed_forward: 64
  dropout: 0.1
  encoder: {layers: 2}
  decoder: {layers: 1}
training:
  max_updates: 40
  batch_tokens: 600
  schedule: {type: constant, peak: 0.01, warmup: 5}
  validation: {every: 20, max_sentences: 16}
  log_every: 10
  device: cpu
  precision: fp32
decoding: {beam: 2, max_length_extra: 5}
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, multi30k: Mapping[str, Sequence[str]]) -> Path:
    """A folder with a small corpus and finished runs of both directions, `runs/de-en` and `runs/en-de`."""
    folder = tmp_path_factory.mktemp("line")
    for language, lines in multi30k.items():
        parts = {"train": lines[:300], "valid": lines[300:324], "mono": lines[400:440]}
        for name, part in parts.items():
            (folder / f"{name}.{language}").write_text("\n".join(part) + "\n", encoding="utf-8")
    (folder / "de-en.yaml").write_text(RUN_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "de-en.yaml", "-q"]) == 0
        reverse = ["data.source=en", "data.target=de", "run=runs/en-de"]
        assert main(["train", "de-en.yaml", "-q", *reverse]) == 0
    return folder


@pytest.fixture(autouse=True)
def _there(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)


def losses(run: Path, kind: str, name: str) -> list[float]:
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [entry[name] for entry in entries if entry["kind"] == kind]


@pytest.mark.slow
def test_a_student_learns_from_real_and_distilled_and_back_translated_text(corpus: Path) -> None:
    assert main(["distill", "runs/de-en", "--source", "train.de", "--output", "distilled.gz", "-q"]) == 0
    back = "back-translate runs/en-de --input mono.en --output back --sample --tag <BT> -q"
    assert main(back.split()) == 0
    lines = (corpus / "back.de").read_bytes().splitlines()
    assert len(lines) == 40
    assert (corpus / "back.en").read_text(encoding="utf-8") == (corpus / "mono.en").read_text(
        encoding="utf-8"
    )
    (corpus / "student.yaml").write_text(
        RUN_FILE.replace("train: train", "train: [train, distilled, back]").replace(
            "d_model: 32", "d_model: 16"
        )
    )
    assert main(["train", "student.yaml", "training.max_updates=10", "-q"]) == 0
    log = (corpus / "runs/student/log.txt").read_text()
    assert (
        int(log.split(" training pairs")[0].split()[-1]) > 600
    )  # of 640; some random lines are filtered out


def test_fine_tuning_with_averages_and_frozen_encoder_begins_where_the_model_was(corpus: Path) -> None:
    settings = [
        "run=runs/tuned",
        "training.start_from=runs/de-en@last",
        "training.freeze=encoder.*",
        "training.ema.decay=0.9",
        "training.r_drop=2",
        "training.max_updates=20",
        "training.validation.metrics=[chrf, ter]",
        "training.early_stopping.metric=chrf",
        "training.schedule.peak=0.001",
    ]
    assert main(["train", "de-en.yaml", "-q", *settings]) == 0
    before, after = corpus / "runs/de-en", corpus / "runs/tuned"
    assert losses(after, "train", "nll")[0] < losses(before, "train", "nll")[0] - 1
    assert losses(after, "valid", "nll")[-1] < losses(before, "valid", "nll")[-1] + 0.2
    assert all(0 <= score <= 100 for score in losses(after, "valid", "chrf"))
    assert losses(after, "valid", "ter")
    assert losses(after, "train", "r_drop")
    log = (after / "log.txt").read_text()
    assert "started from runs/de-en@last" in log
    assert "frozen by encoder.*: " in log
    assert " ter " in log
    assert main(["translate", "runs/tuned", "-i", "valid.de", "-o", "out.txt", "-q"]) == 0
    assert len((corpus / "out.txt").read_text(encoding="utf-8").splitlines()) == 24


def test_a_larger_vocabulary_keeps_what_was_learned(corpus: Path) -> None:
    settings = [
        "run=runs/larger",
        "data.vocabulary.size=560",
        "training.start_from=runs/de-en",
        "training.max_updates=2",
    ]
    assert main(["train", "de-en.yaml", "-q", *settings]) == 0
    report = json.loads((corpus / "runs/larger/start_from.json").read_text())
    rows = report["vocabulary"]["joint"]
    assert rows["taken"] + rows["new"] == 556
    assert rows["taken"] > 450
    # Far better than an untrained model, whose loss is the logarithm of the vocabulary.
    assert losses(corpus / "runs/larger", "train", "nll")[0] < 5.5


def test_the_vocabulary_of_a_model_serves_other_text(corpus: Path) -> None:
    settings = ["run=runs/domain", "data.train=mono"]
    same = ["data.vocabulary={type: existing, folder: runs/de-en}", "training.start_from=runs/de-en"]
    assert main(["train", "de-en.yaml", "-q", *settings, *same, "training.max_updates=2"]) == 0
    report = json.loads((corpus / "runs/domain/start_from.json").read_text())
    assert report["vocabulary"] == {}
    assert losses(corpus / "runs/domain", "train", "nll")[0] < 5.5
