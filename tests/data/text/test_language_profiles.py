"""What languages look like: learned, stored, told apart."""

from __future__ import annotations

import gzip

import pytest

from deepwire.data.text.language_profiles import LanguageProfiles
from deepwire.errors import ModelError

TEXTS = {
    "de": ["Der Hund läuft über die Wiese und bellt.", "Zwei Kinder spielen im Garten mit einem Ball."] * 3,
    "en": ["The dog runs across the meadow and barks.", "Two children play in the garden with a ball."] * 3,
    "ru": ["Собака бежит по лугу и лает.", "Двое детей играют в саду с мячом."] * 3,
}
PROFILES = LanguageProfiles.learn(TEXTS)


@pytest.mark.parametrize(
    ("text", "language"),
    [("Die Kinder bellen", "de"), ("the children bark!", "en"), ("ДЕТИ ЛАЮТ", "ru"), ("und", "de")],
)
def test_short_texts_are_told_apart(text, language):
    shares = PROFILES.shares(text)
    assert next(iter(shares)) == language
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_only_the_languages_that_are_asked_for():
    assert set(PROFILES.shares("Die Kinder", among={"en", "ru"})) == {"en", "ru"}
    assert PROFILES.shares("Die Kinder", among={"fr"}) == {}
    for text in ("", " 12 !? ", "👍"):
        assert PROFILES.shares(text) == {}


def test_a_longer_text_makes_it_surer():
    short, long = (PROFILES.shares(text)["de"] for text in ("die", "die Kinder spielen im Garten"))
    assert 1 / 3 < short < long


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def test_they_are_stored_and_read_again():
    content = PROFILES.to_bytes()
    again = LanguageProfiles.from_bytes(content, "a")
    assert again == PROFILES
    assert again.to_bytes() == content
    assert again.shares("Die Kinder") == PROFILES.shares("Die Kinder")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no gzip", id="not compressed"),
        pytest.param(_packed("{"), id="not JSON"),
        pytest.param(_packed("[]"), id="a list"),
        pytest.param(_packed('{"format": 2, "languages": {}}'), id="another format"),
        pytest.param(_packed('{"format": 1, "languages": {"de": {}}}'), id="empty profile"),
        pytest.param(
            _packed('{"format": 1, "languages": {"de": {"totals": [1], "counts": {"a": 1}}}}'),
            id="too few totals",
        ),
        pytest.param(
            _packed('{"format": 1, "languages": {"de": {"totals": [1, 1, 1, 1], "counts": {"a": 0}}}}'),
            id="a count of 0",
        ),
        pytest.param(PROFILES.to_bytes()[:-20], id="cut off"),
    ],
)
def test_what_is_damaged_is_refused(content):
    with pytest.raises(ModelError, match="here: damaged: not profiles of languages"):
        LanguageProfiles.from_bytes(content, "here")


def test_of_a_language_that_several_know_the_first_profile_counts():
    other = LanguageProfiles.learn({"de": ["Katze"], "fr": ["Le chien court dans le pré."]})
    both = LanguageProfiles.together([PROFILES, other])
    assert set(both.labels) == {"de", "en", "ru", "fr"}
    assert both.counts["de"] == PROFILES.counts["de"]
    assert next(iter(both.shares("le chien"))) == "fr"
    assert LanguageProfiles.together([]).shares("a") == {}
