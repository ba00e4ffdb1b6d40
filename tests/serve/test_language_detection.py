"""In which language a text is: by what the models know of theirs, or by what came with a package."""

from __future__ import annotations

import pytest

from deepwire.data.languages import Direction
from deepwire.data.text.language_profiles import LanguageProfiles
from deepwire.serve.language_detection import LanguageDetector, SourceDetector

PROFILES = LanguageProfiles.learn(
    {
        "de": ["Der Hund bellt im Garten", "Zwei Kinder spielen auf der Wiese"],
        "xx": ["Ptak szczeka na drzewie", "Dwoje dzieci bawi szczerze"],
    }
)


def test_profiles_of_the_models_decide_where_all_languages_have_one():
    found = LanguageDetector(["de", "xx"], [None, PROFILES]).detect("szczerze")
    assert found[0].language == "xx"
    assert sum(one.confidence for one in found) == pytest.approx(100, abs=1.1)
    assert LanguageDetector(["de", "xx"], [PROFILES]).detect("Kinder", {"xx"})[0].language == "xx"


def test_otherwise_the_package_tells_the_languages_that_it_knows():
    detector = LanguageDetector(["de", "fr", "xx"], [PROFILES])
    assert detector.detect("Le chien court dans le jardin avec des enfants")[0].language == "fr"
    assert all(one.language != "xx" for one in detector.detect("szczerze"))


def test_there_is_nothing_to_tell_by():
    for detector in (LanguageDetector(["de", "xx"], [PROFILES]), LanguageDetector(["de", "fr"])):
        assert detector.detect("12 👍") == []


def test_texts_that_are_to_be_translated():
    detector = SourceDetector([Direction("de", "xx"), Direction("xx", "de")], [PROFILES])
    assert detector.language_of("Die Kinder, der Hund", "xx").language == "de"
