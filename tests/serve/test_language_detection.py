"""In which language a text is, as a server tells it."""

from __future__ import annotations

import pytest

from deepwire.data.languages import Direction
from deepwire.serve.language_detection import LanguageDetector, SourceDetector


def test_only_languages_of_the_server_that_are_known_are_told():
    detector = LanguageDetector(["de", "fr", "xx"])
    found = detector.detect("Le chien court dans le jardin avec des enfants")
    assert found[0].language == "fr"
    assert sum(one.confidence for one in found) == pytest.approx(100, abs=1.1)
    assert detector.detect("Kinder", {"fr"})[0].language == "fr"
    assert detector.detect("Kinder", {"xx"}) == detector.detect("12 👍") == []


def test_texts_that_are_to_be_translated():
    detector = SourceDetector([Direction("de", "en"), Direction("en", "de")])
    assert detector.language_of("Die Kinder, der Hund", "en").language == "de"
