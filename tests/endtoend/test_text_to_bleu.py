"""The whole line on real text, as a user walks it: two files, one run file, the commands of the README."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import deepwire

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from forked import deepwire_command

RUN_FILE = """
data:
  source: de
  target: en
  train: train
  valid: valid
  test: test
  vocabulary: {type: bpe, size: 600, joint: true}
model:
  d_model: 32
  heads: 2
  feed_forward: 64
  dropout: 0.0
  encoder: {layers: 2, connection: depth_lstm}
  decoder: {layers: 2, connection: depth_lstm, fusion: {type: groups, size: 1}}
training:
  max_updates: 40
  batch_tokens: 600
  schedule: {type: constant, peak: 0.01, warmup: 5}
  validation: {every: 20, bleu: true, max_sentences: 16}
  checkpoint: {every: 10, keep_last: 3}
  log_every: 10
decoding: {beam: 2, max_length_extra: 5}
"""


def deepwire_alone(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, in a process that has imported nothing yet."""
    return subprocess.run(
        [sys.executable, "-m", "deepwire", *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, multi30k: Mapping[str, Sequence[str]]) -> Path:
    """A folder with a small corpus and a finished run of it in `runs/small`."""
    folder = tmp_path_factory.mktemp("line")
    for language, lines in multi30k.items():
        for name, part in (("train", lines[:400]), ("valid", lines[400:424]), ("test", lines[424:444])):
            (folder / f"{name}.{language}").write_text("\n".join(part) + "\n", encoding="utf-8")
    (folder / "small.yaml").write_text(RUN_FILE)
    result = deepwire_command("train", "small.yaml", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder


def test_training_lowers_the_loss_and_reports_bleu(trained: Path) -> None:
    entries = [json.loads(line) for line in (trained / "runs/small/metrics.jsonl").read_text().splitlines()]
    losses = [entry["nll"] for entry in entries if entry["kind"] == "train"]
    assert losses[-1] < losses[0] - 1.0
    assert all("bleu" in entry for entry in entries if entry["kind"] == "valid")


def test_the_same_command_finds_nothing_to_do(trained: Path) -> None:
    before = (trained / "runs/small/metrics.jsonl").read_bytes()
    result = deepwire_command("train", "small.yaml", cwd=trained)
    assert result.returncode == 0
    assert "nothing to do" in result.stderr + result.stdout
    assert (trained / "runs/small/metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("model", ["runs/small", "runs/small@avg3", "runs/small@last"])
def test_translate_gives_as_many_lines_as_it_reads(trained: Path, model: str) -> None:
    text = "Ein Hund läuft.\n\nZwei Männer\u2028spielen </s> <pad>.\r\nEine Frau"
    result = deepwire_command("translate", model, cwd=trained, stdin=text)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[4] == ""
    assert all(lines[index] for index in (0, 2, 3))


def test_python_and_command_agree(trained: Path) -> None:
    source = (trained / "test.de").read_text(encoding="utf-8")
    # Each process chooses its number format by timing, if it may.
    result = deepwire_alone("translate", "runs/small", "--precision", "fp32", cwd=trained, stdin=source)
    model = deepwire.load(trained / "runs" / "small", precision="fp32")
    assert model.translate(source.splitlines()) == result.stdout.splitlines()


def test_score_and_evaluate(trained: Path) -> None:
    scored = deepwire_command(
        "score", "runs/small", "--source", "test.de", "--target", "test.en", cwd=trained
    )
    assert scored.returncode == 0, scored.stderr
    assert len([float(line) for line in scored.stdout.split()]) == 20
    evaluated = deepwire_command("evaluate", "--model", "runs/small", "--json", cwd=trained)
    assert evaluated.returncode == 0, evaluated.stderr
    assert "tok:13a" in evaluated.stdout


def test_inspect_counts_what_is_stored(trained: Path) -> None:
    by_run = json.loads(deepwire_command("inspect", "runs/small", "--json", cwd=trained).stdout)
    by_file = json.loads(deepwire_command("inspect", "small.yaml", "--json", cwd=trained).stdout)
    assert by_run["parameters"] == by_file["parameters"] == sum(by_run["parts"].values())
