"""Signs of runs: with text spoiled on purpose, with curves written by hand, and (slow) trained wrong."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from deepwire.checkpoint.model_files import write_tensors
from deepwire.cli.main import main
from deepwire.data.prepare.prepared import prepare
from deepwire.errors import ModelError
from deepwire.lab.doctor import Sign, examine
from deepwire.runfile import load_run_file

Multi30k = Mapping[str, Sequence[str]]
Pairs = list[tuple[str, str]]
RUN_FILE = """
data:
  source: de
  target: en
  train: train
  valid: valid
  test: test
  vocabulary: {type: bpe, size: 1500, joint: true}
model:
  d_model: 64
  heads: 4
  feed_forward: 128
  encoder: {layers: 2}
  decoder: {layers: 2}
  embeddings: {tie: all}
training:
  max_updates: 400
  batch_tokens: 768
  device: cpu
  precision: fp32
  threads: 1
  schedule: {type: inverse_sqrt, peak: 0.003, warmup: 100}
  validation: {every: 50}
  log_every: 10
"""


def pairs_of(multi30k: Multi30k, first: int, count: int) -> Pairs:
    places = slice(first, first + count)
    return list(zip(multi30k["de"][places], multi30k["en"][places], strict=True))


def spoiled(pairs: Pairs, held_out: Pairs, how: str) -> Pairs:
    """The training text with one mistake."""
    sources, targets = map(list, zip(*pairs, strict=True))
    match how:
        case "shifted":
            targets = [*targets[1:], targets[0]]
        case "shifted later":
            middle = len(pairs) // 2
            targets = [*targets[:middle], *targets[middle + 1 :], targets[middle]]
        case "shuffled":
            random.Random(1).shuffle(targets)
        case "copied":
            targets[::2] = sources[::2]
        case "swapped":
            sources, targets = targets, sources
        case "cut":
            targets = [" ".join(line.split()[: len(line.split()) // 2]) for line in targets]
        case "leaked":
            return [*pairs, *held_out]
        case "few":
            return pairs[:300]
    return list(zip(sources, targets, strict=True))


def write_run(folder: Path, multi30k: Multi30k, how: str, count: int) -> Path:
    """Text, and a run file for it."""
    held_out = pairs_of(multi30k, 20_000, 100)
    for name, pairs in (
        ("train", spoiled(pairs_of(multi30k, 0, count), held_out, how)),
        ("valid", pairs_of(multi30k, 21_000, 100)),
        ("test", held_out),
    ):
        for side, language in enumerate(("de", "en")):
            (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    (folder / "run.yaml").write_text(RUN_FILE)
    return folder / "run.yaml"


def untrained(folder: Path, multi30k: Multi30k, how: str = "", vocabulary: str = ".size=1000") -> Path:
    """A run directory before its first update."""
    loaded = load_run_file(str(write_run(folder, multi30k, how, 1000)), [f"data.vocabulary{vocabulary}"])
    prepare(loaded.config.data, seed=1)
    run = folder / "run"
    run.mkdir()
    (run / "config.resolved.json").write_text(json.dumps(loaded.resolved))
    return run


def odd(signs: Sequence[Sign]) -> list[str]:
    return [sign.subject for sign in signs if sign.state == "odd"]


@pytest.mark.parametrize(
    ("how", "subject"),
    [
        ("", None),
        ("shifted", "pairs of lines"),
        ("shuffled", "pairs of lines"),
        ("copied", "train text"),
        ("swapped", "train text"),
        ("cut", "length of lines"),
        ("leaked", "test text"),
    ],
)
def test_mistakes_of_the_text_are_found(
    tmp_path: Path, multi30k: Multi30k, how: str, subject: str | None
) -> None:
    signs = examine(str(untrained(tmp_path, multi30k, how)))
    assert odd(signs)[:1] == ([subject] if subject else [])
    assert all(bool(sign.advice) == (sign.state == "odd") for sign in signs)
    assert [sign.subject for sign in signs if sign.state == "unknown"] == ["learning"]


def test_a_line_that_is_missing_is_placed(tmp_path: Path, multi30k: Multi30k) -> None:
    first, *others = examine(str(untrained(tmp_path, multi30k, "shifted later")))
    assert "in 50% of the text source N fits target N-1 better" in first.measured
    assert odd(others) == []


def test_a_vocabulary_may_be_too_large(tmp_path: Path, multi30k: Multi30k) -> None:
    run = untrained(tmp_path, multi30k, vocabulary=".size=4000")
    assert odd(examine(str(run))) == ["vocabulary"]
    folder = next(tmp_path.rglob("vocabulary"))
    (tmp_path / "tuned").mkdir()
    tuned = untrained(tmp_path / "tuned", multi30k, vocabulary=f"={{type: existing, folder: {folder}}}")
    assert odd(examine(str(tuned))) == []


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, multi30k: Multi30k) -> Path:
    return untrained(tmp_path_factory.mktemp("plain"), multi30k)


@pytest.fixture
def run(plain: Path, tmp_path: Path) -> Path:
    """A run directory with sound text, and nothing else yet."""
    return shutil.copytree(plain, tmp_path / "run")


def logged(
    run: Path, train: Sequence[float | None], valid: Sequence[float], rate: float = 0.003, tokens: int = 700
) -> None:
    """Write losses of every 100th update as the log of a run; None: not finite."""
    lines: list[dict[str, object]] = []
    for place, loss in enumerate(train, 1):
        record = {"kind": "train", "update": 100 * place, "nll": loss, "learning_rate": rate}
        lines.append(record | {"target_tokens": 100 * place * tokens})
    lines += [{"kind": "valid", "update": 100 * n, "nll": loss} for n, loss in enumerate(valid, 1)]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


FALLING = [5.0, 4.5, 4.0, 3.6, 3.3, 3.0, 2.8, 2.7]


@pytest.mark.parametrize(
    ("train", "valid", "tokens", "found"),
    [
        (FALLING, FALLING, 700, []),
        (FALLING[:1], FALLING[:1], 700, []),
        (FALLING, FALLING, 100, ["size of updates"]),
        (FALLING, [*FALLING[:5], 3.4, 3.5, 3.6], 700, ["validation loss"]),
        ([*FALLING[:6], 6.0, 4.0], FALLING, 700, ["learning rate"]),
        ([6.0] * 8, [6.0] * 8, 700, ["loss"]),
    ],
)
def test_curves_are_judged(
    run: Path, train: list[float], valid: list[float], tokens: int, found: list[str]
) -> None:
    logged(run, train, valid, tokens=tokens)
    assert odd(examine(str(run))) == found


def test_updates_that_were_not_finite_are_odd_however_young_the_run(run: Path) -> None:
    logged(run, [None], [])
    (run / "bad_batch.jsonl").write_text('{"update": 7, "lines": [], "texts": []}\n')
    assert odd(examine(str(run))) == ["learning rate"]


@pytest.mark.parametrize(
    ("rate", "agreement", "advice"),
    [
        (0.2, 0.7, "divide the rate in training.schedule by 10"),
        (0.2, 1.0, ""),
        (0.01, 0.7, ""),
        (0.01, 0.1, "divide the rate in training.schedule by 10"),
        (0.001, 1.0, ""),
        (0.001, 2.0, "multiply the rate in training.schedule by 10"),
    ],
)
def test_the_rate_is_judged_by_the_moments_of_adam(
    run: Path, rate: float, agreement: float, advice: str
) -> None:
    logged(run, FALLING, FALLING, rate)
    folder = run / "checkpoints" / "update-000800"
    folder.mkdir(parents=True)
    ones = torch.ones(4, 4)
    write_tensors(folder / "model.safetensors", {"w": ones})
    step = agreement * math.sqrt(0.1 / 1.9)
    moments = {"exp_avg.w": step * ones, "exp_avg_sq.w": ones, "step.w": torch.tensor(1e6)}
    write_tensors(folder / "optimizer.safetensors", moments)
    (sign,) = [sign for sign in examine(str(run)) if sign.subject == "learning rate"]
    assert sign.advice == advice
    assert f"changes a matrix by {rate * step:.2%}" in sign.measured
    assert f"agree {agreement:.2f} times" in sign.measured


def test_translations_that_are_all_the_same_are_odd(run: Path) -> None:
    logged(run, FALLING, FALLING)
    (run / "valid").mkdir()
    (run / "valid" / "update-000800.txt").write_text("A man.\n" * 9 + "A dog.\n")
    assert odd(examine(str(run))) == ["translations"]


def test_without_its_text_the_curve_is_judged(tmp_path: Path, multi30k: Multi30k) -> None:
    run = untrained(tmp_path, multi30k)
    logged(run, FALLING, [*FALLING[:5], 3.4, 3.5, 3.6])
    (tmp_path / "train.de").unlink()
    signs = {sign.subject: sign.state for sign in examine(str(run))}
    assert (signs["text"], signs["validation loss"]) == ("unknown", "odd")


def test_the_command_prints_lines_or_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged(run, FALLING, FALLING, tokens=100)
    assert main(["doctor", str(run)]) == 0
    first, second, third, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{run}: 1 sign is odd"
    assert second.startswith("odd     size of updates: 100 target tokens")
    assert third.startswith("        try: ")
    assert main(["doctor", str(run), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["signs"][0]["subject"] == "size of updates"


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is no run directory"):
        examine(str(tmp_path))
    assert main(["doctor", str(tmp_path / "absent")]) == ModelError.exit_code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "settings", "subject"),
    [
        ("", "", None),
        ("", "model.encoder.connection=post_norm training.schedule.type=cosine", None),
        ("", "training.schedule.peak=0.09", "learning rate"),
        ("", "training.schedule.peak=0.00003", "learning rate"),
        ("shifted", "", "pairs of lines"),
        ("shuffled", "", "pairs of lines"),
        ("copied", "", "train text"),
        ("leaked", "", "test text"),
        ("cut", "", "length of lines"),
        ("", "data.vocabulary.size=20000 training.max_updates=250", "vocabulary"),
        ("few", "data.vocabulary.size=500 model.dropout=0 training.max_updates=600", "validation loss"),
        ("", "model.dropout=0.8", "regularisation"),
    ],
)
def test_runs_trained_wrong_are_told_from_others(
    tmp_path: Path, multi30k: Multi30k, how: str, settings: str, subject: str | None
) -> None:
    run_file, run = write_run(tmp_path, multi30k, how, 3000), tmp_path / "run"
    assert main(["train", str(run_file), f"run={run}", *settings.split(), "--quiet"]) == 0
    assert odd(examine(str(run)))[:1] == ([subject] if subject else [])
