"""Names that are nearly right: one line says what is wrong, another what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepwire.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["inspect", "."], 4, "error: .: is not a model: no model.safetensors"),
        (["average", "runs/a@last"], 2, "hint: name the run, runs/a, and perhaps --last N"),
        (["average", "model", "-o", "x"], 2, "model: is one model; average needs a run, or two models and"),
        (
            ["data", "check", "run.yaml", "data.train=text/train.de"],
            3,
            "hint: a prefix has no ending: name train in place of train.de",
        ),
        (
            ["train", "run.yaml", "training.freeze=[*embedding*]", "--dry-run"],
            2,
            "hint: put text that begins with * between quotes, such as '*embedding*'",
        ),
    ],
)
def test_what_was_meant_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").touch()
    for language in ("de", "en"):
        (tmp_path / f"text/train.{language}").write_text("ein\n")
    (tmp_path / "run.yaml").write_text(
        "data: {source: de, target: en, train: text/train, valid: text/train}\n"
    )
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("error: ") == 1
