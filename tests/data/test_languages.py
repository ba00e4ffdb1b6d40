from __future__ import annotations

from itertools import permutations

import pytest

from deepwire.data.languages import Direction, Languages, closest_label, expand_directions
from deepwire.errors import ModelError, UsageError

TAGS = ["de", "nds", "pt_BR", "zh-Hans", "zh-Hant-TW", "sr_Latn", "sr_Latn-RS", "es-419", "en-GB", "ab_ab"]
SIX = Languages(tuple(map(Direction.parse, ["en-de", "de-en", "en-fr", "fr-en", "en-cs", "cs-en"])))


def test_a_direction_is_read_in_one_way_only() -> None:
    for source, target in permutations(TAGS, 2):
        assert Direction.parse(f"{source}-{target}") == (source, target)
    for tag in TAGS:
        with pytest.raises(ValueError, match="into itself"):
            Direction.parse(f"{tag}-{tag}")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("pt", "pt_BR"),
        ("PT-br", "pt_BR"),
        ("zh-hans", "zh-Hans"),
        ("pt_PT", "pt_PT"),
        ("zh", "zh-Hans"),
        ("de-AT", "de-AT"),
        ("sr", "sr"),
    ],
)
def test_a_language_without_its_country_means_the_only_label_of_it(name: str, label: str) -> None:
    labels = ["de", "pt_BR", "zh-Hans", "zh-Hant", "sr_Latn", "sr_Cyrl"]
    assert closest_label(name, labels) == label
    languages = Languages(tuple(Direction("en", label) for label in labels))
    if label in labels:
        assert languages.target(name) == languages.target(label)
        languages.require_source(name)
    else:
        with pytest.raises(UsageError, match="does not know the language"):
            languages.target(name)


def test_directions_are_written_out() -> None:
    assert expand_directions("en-de") == ["en-de"]
    written = expand_directions(["en-de", {"between": "en", "and": ["fr", "cs"]}])
    assert written == ["en-de", "en-fr", "fr-en", "en-cs", "cs-en"]
    between = expand_directions({"between": ["de", "en", "fr"]})
    assert isinstance(between, list)
    assert sorted(between) == ["de-en", "de-fr", "en-de", "en-fr", "fr-de", "fr-en"]
    assert expand_directions({"between": ["de", "en"], "and": ["en", "de"]}) == ["de-en", "en-de"]
    assert expand_directions({"from": ["en", "de"], "to": ["de", "fr"]}) == ["en-de", "en-fr", "de-fr"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (["en-german"], "'en-german' is not a direction .*: two languages, each two or three small letters"),
        (["zh-hans-en"], "'zh-hans-en' is not a direction"),
        (["en-en"], "translates a language into itself"),
        ([{"from": "en", "and": "de"}], "a direction is written en-de"),
        ([{"between": ["en"], "and": ["English"]}], "'English' is not a language tag"),
        ([{"between": [False]}], "put it in quotes"),
    ],
)
def test_what_is_no_direction_is_refused(written: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        expand_directions(written)


def test_languages_have_a_fixed_order_and_tags_follow_the_pieces() -> None:
    assert SIX.names == ("cs", "de", "en", "fr")
    assert [SIX.target(name) for name in SIX.names] == [0, 1, 2, 3]
    assert SIX.indices[:2] == ((2, 1), (1, 2))
    assert SIX.tags == 4
    assert Languages(SIX.directions, "none").tags == 0
    places = {"source": (True, False), "target": (False, True), "both": (True, True), "none": (False, False)}
    for place, where in places.items():
        languages = Languages(SIX.directions, place)  # type: ignore[arg-type]
        assert (languages.tags_source, languages.tags_target) == where


def test_what_a_model_stores_comes_back_or_is_refused() -> None:
    stored = SIX.to_metadata()
    assert Languages.from_metadata({"source": "de", **stored}) == SIX
    assert Languages.from_metadata({"source": "de", "target": "en"}) is None
    damages: list[dict[str, object]] = [
        {"directions": []},
        {"directions": ["en"]},
        {"directions": "en-de"},
        {"directions": 3},
        {"languages": ["en"]},
        {"tag": "nowhere"},
    ]
    for damage in damages:
        with pytest.raises(ModelError, match="stored languages are damaged"):
            Languages.from_metadata({**stored, **damage})
