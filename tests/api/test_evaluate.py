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


@pytest.mark.parametrize("given", ["runs/base", Path("runs/base"), 3, None])
def test_a_comparison_of_one_system_is_refused_by_its_name(given: Any) -> None:
    """A name is a sequence, too: of its letters."""
    with pytest.raises(UsageError) as raised:
        deepwire.compare(given, ["a"])
    assert raised.value.message == f"systems: must be a mapping or a list of two or more, not {given!r}"


def test_what_is_neither_a_text_nor_a_model_is_refused() -> None:
    for wrong in (None, 3):
        with pytest.raises(UsageError, match=f"system 1: must be .* not {wrong!r}"):
            deepwire.evaluate(wrong, ["a"])  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=f"system 2: must be .* not {wrong!r}"):
            deepwire.compare([["a"], wrong], ["a"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match=r"reference 1: must be .* not 3"):
        deepwire.evaluate(["a"], 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"decoding": {"beem": 3}}, "decoding: texts are scored as they are"),
        ({"device": "nonsense"}, "device: texts are scored as they are"),
        ({"precision": "fp3"}, "precision: texts are scored as they are"),
        ({"metrics": ["chrf"], "tokenize": "zh"}, "tokenize: is for bleu"),
        ({"metrics": []}, "metrics: must be names or metrics"),
        ({"metrics": None}, "metrics: must be names or metrics, not None"),
        ({"language": 3}, "language: must be a name such as ja, not 3"),
        ({"direction": 3}, "'3' is not a direction such as en-de"),
    ],
)
def test_settings_that_say_nothing_of_texts_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        deepwire.evaluate(["a"], ["a"], **settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"baseline": "x"}, "baseline: must be a whole number of 0 or more, not 'x'"),
        ({"baseline": 2}, "there is no system 2"),
        ({"samples": 10.5}, "samples: must be a whole number of 1 or more"),
        ({"seed": -1}, "seed: must be a whole number of 0 or more, not -1"),
    ],
)
def test_numbers_of_a_comparison_are_whole(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        deepwire.compare([["a"], ["b"]], ["a"], **settings)


def test_a_system_is_not_left_out_for_its_name(tmp_path: Path) -> None:
    text = tmp_path / "out.de"
    text.write_text("ein Haus\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"systems: .*out\.de is there twice"):
        deepwire.compare([text, ["ein Hund"], text], ["ein Haus"])
