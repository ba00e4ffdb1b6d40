from __future__ import annotations

import pytest

from deepwire.data.languages import Direction
from deepwire.errors import DataError, UsageError
from deepwire.evaluation.multilingual.direction_names import (
    parse_directions,
    parse_group,
    read_sizes,
    resource_groups,
)

DIRECTIONS = parse_directions("en-de,de-en,en-br,fr-de")


def test_directions_are_read_once_each():
    assert parse_directions("en-de, de-en,en-de") == [Direction("en", "de"), Direction("de", "en")]
    assert parse_directions("en-zh-Hans") == [Direction("en", "zh-Hans")]


def test_groups_have_a_name_or_are_their_own():
    assert parse_group("Germanic=de, nl").name == "Germanic"
    assert parse_group("de,zh,br,te").name == "de, zh, br, te"
    for text in ("", "name=", " , "):
        with pytest.raises(UsageError, match="names no language"):
            parse_group(text)


def test_the_larger_count_of_a_language_decides():
    sizes = {Direction("en", "de"): 50, Direction("de", "en"): 500, Direction("de", "fr"): 5000}
    groups = resource_groups(sizes, "en", high=400, low=100)
    assert [(group.name, set(group.languages)) for group in groups] == [("high (from 400 pairs)", {"de"})]


def test_sizes_come_by_direction_or_by_language(tmp_path):
    path = tmp_path / "sizes.json"
    path.write_text('{"de": 1000, "en-br": 20, "fr": 7}')
    assert {str(one): size for one, size in read_sizes(path, DIRECTIONS, "en").items()} == {
        "en-de": 1000,
        "de-en": 1000,
        "en-br": 20,
    }


@pytest.mark.parametrize("text", ["", "[1]", '{"de": "many"}', '{"de": -1}', '{"de": true}', '{"de": 1.5}'])
def test_files_that_hold_no_sizes_are_refused_by_name(tmp_path, text):
    path = tmp_path / "sizes.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"sizes\.json: "):
        read_sizes(path, DIRECTIONS, "en")
    with pytest.raises(DataError, match="cannot read"):
        read_sizes(tmp_path / "absent.json", DIRECTIONS, "en")
