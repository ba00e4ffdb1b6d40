"""Thirty wrong inputs: the exit code, and the words that help: where, which key, which value."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_runs import command
from contract_texts import EXACT, OLD, copy_of_old

import deepwire


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that no wrong input changes."""
    return copy_of_old(tmp_path_factory.mktemp("errors"))


RUN = (OLD / "run.yaml").read_text(encoding="utf-8")
LINE = RUN.splitlines().index("  batch_tokens: 400") + 1
TRANSLATE = ("translate", "model", *EXACT)

COMMANDS = {
    "no such command": (("tranlate", "model"), 2, ["tranlate"]),
    "no such option": ((*TRANSLATE, "--beams", "3"), 2, ["--beams", "--beam"]),
    "an option's value": ((*TRANSLATE, "--beam", "0"), 2, ["--beam", "0"]),
    "no such choice": ((*TRANSLATE, "--terms", "text.de", "--term-search", "most"), 2, ["most", "prefer"]),
    "no such setting of decoding": ((*TRANSLATE, "--set", "beams=3"), 2, ["beams", "beam"]),
    "no such device": (("translate", "model", "--device", "tpu"), 2, ["tpu"]),
    "no such precision": (("translate", "model", "--precision", "fp3"), 2, ["fp3", "fp32"]),
    "no such model": (("translate", "runs/nowhere"), 4, ["runs/nowhere"]),
    "no such checkpoint": (("translate", "run@update-7"), 4, ["update 7", "run"]),
    "no such input": ((*TRANSLATE, "--input", "nowhere.de"), 3, ["nowhere.de"]),
    "terms without a tab": ((*TRANSLATE, "--terms", "text.de"), 3, ["text.de:1"]),
    "a column too few": ((*TRANSLATE, "--language-column", "3"), 2, ["--language-column", "3"]),
    "no such run file": (("train", "nowhere.yaml"), 2, ["nowhere.yaml"]),
    "no such key": (("train", "run.yaml", "training.batch_token=4"), 2, ["batch_token", "batch_tokens"]),
    "no number": (("train", "run.yaml", "model.heads=x"), 2, ["command line", "model.heads", "x"]),
    "no key=value": (("train", "run.yaml", "heads"), 2, ["heads", "key=value"]),
    "heads that do not fit": (("train", "run.yaml", "run=new", "model.heads=5"), 2, ["heads", "5", "32"]),
    "no such choice of a socket": (
        ("train", "run.yaml", "model.encoder.connection=pre_nrm"),
        2,
        ["model.encoder.connection", "pre_nrm", "pre_norm"],
    ),
    "another architecture": (
        ("train", "run.yaml", "run=run", "model.d_model=64"),
        2,
        ["d_model", "32", "64"],
    ),
    "another seed": (("train", "run.yaml", "run=run", "seed=9"), 2, ["seed", "1", "9"]),
    "no such text": (("train", "run.yaml", "run=new", "data.train=nowhere"), 3, ["nowhere.de"]),
    "an unknown recipe": (("recipes", "show", "papers/nothing"), 2, ["papers/nothing"]),
    "an unknown metric": (
        ("evaluate", "text.en", "--reference", "text.en", "--metric", "bleurt5"),
        2,
        ["bleurt5", "bleu"],
    ),
    "an unknown kind of document": (
        ("translate-file", "model", "--input", "run.yaml"),
        2,
        [".yaml", ".docx"],
    ),
    "an unknown format": (("export", "model", "-o", "out", "--format", "onx"), 2, ["onx", "onnx"]),
    "an open port without a token": (("serve", "model", "--host", "0.0.0.0"), 2, ["token"]),
}

FILES = {
    "a misspelt key": (
        "batch_tokens: 400",
        "batch_token: 400",
        2,
        [f"run.yaml:{LINE}", "batch_token", "batch_tokens"],
    ),
    "a wrong value": (
        "batch_tokens: 400",
        "batch_tokens: many",
        2,
        [f"run.yaml:{LINE}", "batch_tokens", "many"],
    ),
    "a tag of Python": ("seed: 1", "seed: !!python/name:os.system", 2, ["run.yaml:1"]),
    "a key twice": ("seed: 1", "seed: 1\nseed: 2", 2, ["run.yaml:2", "seed"]),
    "no YAML": ("seed: 1", "seed: [1", 2, ["run.yaml:"]),
}


def check(folder: Path, arguments: tuple[str, ...], code: int, words: list[str]) -> None:
    done = command(*arguments, cwd=folder, stdin="Ein Hund.\n")
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "error: " in done.stderr
    assert [word for word in words if word not in done.stderr] == [], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("wrong", COMMANDS)
def test_a_wrong_command(folder: Path, wrong: str) -> None:
    check(folder, *COMMANDS[wrong])


@pytest.mark.parametrize("wrong", FILES)
def test_a_wrong_run_file(folder: Path, tmp_path: Path, wrong: str) -> None:
    right, changed, code, words = FILES[wrong]
    assert right in RUN
    (tmp_path / "run.yaml").write_text(RUN.replace(right, changed), encoding="utf-8")
    check(tmp_path, ("train", "run.yaml"), code, words)


def test_wrong_text(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN, encoding="utf-8")
    (tmp_path / "text.de").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "text.en").write_text("one\n", encoding="utf-8")
    check(tmp_path, ("prepare", "run.yaml"), 3, ["text.de", "text.en", "2", "1"])
    (tmp_path / "text.en").write_bytes(b"one\n\xff\xfe\n")
    check(tmp_path, ("prepare", "run.yaml"), 3, ["text.en:2", "UTF-8"])


def test_a_diverging_run_ends_with_its_code(folder: Path) -> None:
    settings = ("run=diverged", "training.max_updates=40", "training.schedule.peak=1e30", "--quiet")
    done = command("train", "run.yaml", *settings, cwd=folder)
    assert done.returncode == 5, done.stderr


def test_the_errors_of_python_are_those_of_the_command(folder: Path) -> None:
    with pytest.raises(deepwire.errors.UsageError, match="batch_token") as usage:
        deepwire.train(folder / "run.yaml", training={"batch_token": 4})
    with pytest.raises(deepwire.errors.ModelError, match="nowhere") as model:
        deepwire.load(folder / "nowhere")
    assert (usage.value.exit_code, model.value.exit_code) == (2, 4)
