"""In which language a text is, as a server tells it."""

from __future__ import annotations

import pytest

from deepwire.data.languages import Direction
from deepwire.serve.language_detection import SourceDetector, likely_languages


def test_only_languages_of_the_server_that_are_known_are_told():
    found = likely_languages("Le chien court dans le jardin avec des enfants", ["de", "fr", "xx"])
    assert found[0].language == "fr"
    assert sum(one.confidence for one in found) == pytest.approx(100, abs=1.1)
    assert likely_languages("Kinder", {"fr"})[0].language == "fr"
    assert likely_languages("Kinder", {"xx"}) == likely_languages("12 👍", {"de"}) == []


def test_texts_that_are_to_be_translated():
    detector = SourceDetector([Direction("de", "en"), Direction("en", "de")])
    assert detector.language_of("Die Kinder, der Hund", "en").language == "de"
