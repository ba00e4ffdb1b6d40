"""Telling languages apart: real German and English, made-up languages, and what must not be guessed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from deepwire.errors import UsageError
from deepwire.evaluation.multilingual.language_identification import (
    LanguageIdentifier,
    train_identifier,
)

EXAMPLES = Path(__file__).parents[3] / "examples" / "multi30k"


def lines_of(split: str, language: str) -> list[str]:
    return gzip.decompress((EXAMPLES / f"{split}.{language}.gz").read_bytes()).decode().splitlines()


@pytest.fixture(scope="module")
def real() -> LanguageIdentifier:
    return train_identifier({language: lines_of("train", language)[:2000] for language in ("en", "de")})


@pytest.mark.parametrize("language", ["de", "en"])
def test_unseen_captions_are_told_apart(real, language):
    share = real.share(lines_of("test_2016_flickr", language), language)
    assert share is not None
    assert share > 0.995


def test_a_mixture_has_the_share_that_was_put_in(real):
    mixed = lines_of("val", "de")[:150] + lines_of("val", "en")[:50]
    assert real.share(mixed, "de") == pytest.approx(0.75, abs=0.01)


def test_scripts_are_enough(real):
    text = {"ru": ["мир труд май"], "el": ["ειρήνη και δουλειά"], "zh": ["和平与劳动"], "hi": ["शांति और काम"]}
    known = train_identifier(text)
    assert known.languages == ("el", "hi", "ru", "zh")
    assert [known.identify(line) for line in ("труд", "δουλειά", "劳动", "काम")] == ["ru", "el", "zh", "hi"]


def test_lines_without_letters_do_not_count(real):
    assert real.identify("12:30 - 14 !?") is None
    assert real.share(["", " ", "123", "..."], "de") is None
    assert real.share(["", "Ein Hund schläft auf dem Sofa."], "de") == 1.0


def test_one_language_or_an_empty_one_is_refused():
    with pytest.raises(UsageError, match="at least two"):
        train_identifier({"de": ["ein hund"]})
    with pytest.raises(UsageError, match="no text to learn fr from"):
        train_identifier({"de": ["ein hund"], "fr": ["", " "]})
