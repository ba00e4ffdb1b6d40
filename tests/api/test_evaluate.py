"""Scores from Python are those of the command."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import deepwire
from deepwire.errors import ModelError, UsageError

JAPANESE = ["猫が庭で寝ている", "犬は公園を走った"]


def test_bleu_has_the_tokenizer_of_the_language(caplog: pytest.LogCaptureFixture) -> None:
    reference = [f"{line}\u3002" for line in JAPANESE]
    with caplog.at_level(logging.WARNING, "deepwire"):
        plain = deepwire.evaluate(JAPANESE, reference)["bleu"]
    assert plain.value < 1
    assert "tok:13a" in plain.signature
    assert "written without spaces" in caplog.text
    by_language = deepwire.evaluate(JAPANESE, reference, language="ja")["bleu"]
    assert by_language.value > 50
    assert any(f"tok:{name}" in by_language.signature for name in ("ja-mecab", "char"))
    assert "tok:char" in deepwire.evaluate(JAPANESE, reference, tokenize="char")["bleu"].signature
    with pytest.raises(UsageError, match="tokenizer"):
        deepwire.evaluate(JAPANESE, reference, tokenize="nonsense")


def test_a_misspelt_file_or_model_is_named_before_anything_is_translated(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out.ja").write_text("".join(f"{line}\n" for line in JAPANESE), encoding="utf-8")
    for source in (None, ["a", "b"]):
        with pytest.raises(ModelError, match=r"out\.jaa: no such file and no such model"):
            deepwire.compare(["out.ja", "out.jaa"], "out.ja", source=source)
    with pytest.raises(ModelError, match="runs/a@last: no such file and no such model"):
        deepwire.evaluate("runs/a@last")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelError, match="folder: is not a model"):
        deepwire.evaluate("folder", "out.ja")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metrics": ["chrf"], "tokenize": "zh"}, "tokenize: is for bleu"),
        ({"direction": 3}, "'3' is not a direction such as en-de"),
    ],
)
def test_settings_that_say_nothing_of_texts_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        deepwire.evaluate(["a"], ["a"], **settings)


def test_a_system_is_not_left_out_for_its_name(tmp_path: Path) -> None:
    text = tmp_path / "out.de"
    text.write_text("ein Haus\n", encoding="utf-8")
    with pytest.raises(UsageError, match="systems: one is there twice"):
        deepwire.compare([text, ["ein Hund"], text], ["ein Haus"])
