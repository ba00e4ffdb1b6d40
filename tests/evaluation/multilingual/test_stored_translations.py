"""Folders of translations: found again when nothing changed, made again when something did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepwire.data.languages import Direction
from deepwire.errors import DataError, ModelError, UsageError
from deepwire.evaluation.model_translations import SearchSettings
from deepwire.evaluation.multilingual.stored_translations import fingerprint, read_stored, store_in
from deepwire.evaluation.multilingual.translation_systems import StoredSystem, open_system
from deepwire.evaluation.texts import Text

DE, FR = Direction("en", "de"), Direction("en", "fr")
SOURCE = Text("source", ["a dog", "a cat"])


def system(name: str | Path):
    return open_system(str(name), SearchSettings({}), print)


def test_what_was_kept_is_found_again_only_if_nothing_changed(tmp_path):
    made = fingerprint(["model 1", DE], SOURCE.lines)
    store_in(tmp_path / "new" / "hyps", "runs/x", [DE], {DE: 7}).keep(DE, ["ein hund", ""], made)
    again = store_in(tmp_path / "new" / "hyps", "runs/x", [DE], {DE: 7})
    assert again.kept(DE, made) == ["ein hund", ""]
    assert again.kept(DE, fingerprint(["model 2", DE], SOURCE.lines)) is None
    assert again.kept(DE, fingerprint(["model 1", DE], ["a dog", "a cow"])) is None
    assert again.kept(FR, made) is None


def test_a_kept_folder_is_a_system_that_knows_what_it_was_trained_on(tmp_path):
    store = store_in(tmp_path, "runs/x", [DE, Direction("de", "en")], {DE: 7})
    store.keep(DE, ["ein hund", "eine katze"], "x")
    store.keep(FR, ["un chien", "un chat"], "y")
    found = system(tmp_path)
    assert isinstance(found, StoredSystem)
    assert found.name == "runs/x"
    assert found.available() == (DE, FR)
    assert found.trained == (DE, Direction("de", "en"))
    assert found.training_pairs == {DE: 7}
    assert found.languages == ("de", "en", "fr")
    assert found.translate(FR, SOURCE).lines == ["un chien", "un chat"]
    with pytest.raises(UsageError, match=r"no translation de-en\.hyp"):
        found.check(Direction("de", "en"))


def test_a_crash_between_text_and_record_costs_one_direction_only(tmp_path):
    store = store_in(tmp_path, "runs/x", None, {})
    store.keep(DE, ["ein hund", "eine katze"], "x")
    (tmp_path / "en-de.hyp").unlink()
    assert store_in(tmp_path, "runs/x", None, {}).kept(DE, "x") is None


def test_translations_of_unknown_origin_are_not_touched(tmp_path):
    (tmp_path / "en-de.hyp").write_text("ein hund\n")
    with pytest.raises(UsageError, match="of unknown origin"):
        store_in(tmp_path, "runs/x", None, {})
    assert [path.name for path in tmp_path.iterdir()] == ["en-de.hyp"]
    assert read_stored(tmp_path).trained is None


UNREADABLE = '{"system": "x", "trained": ["English"], "training_pairs": {}, "made": {}}'


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"system": "x", "trained": 3}', UNREADABLE])
def test_a_damaged_record_is_named(tmp_path, damage):
    (tmp_path / "en-de.hyp").write_text("ein hund\n")
    (tmp_path / "system.json").write_text(damage)
    with pytest.raises(DataError, match=r"system\.json: is damaged"):
        system(tmp_path)


def test_the_record_is_json_for_people(tmp_path):
    store_in(tmp_path, "runs/x", [DE], {DE: 7}).keep(DE, ["ein hund"], "mark")
    record = json.loads((tmp_path / "system.json").read_text())
    assert record == {
        "system": "runs/x",
        "trained": ["en-de"],
        "training_pairs": {"en-de": 7},
        "made": {"en-de": "mark"},
    }


def test_files_with_foreign_names_are_refused_by_name(tmp_path):
    (tmp_path / "test.hyp").write_text("ein hund\n")
    with pytest.raises(UsageError, match=f"{tmp_path}: 'test' is not a direction"):
        system(tmp_path)


def test_a_pattern_names_a_file_of_each_direction(tmp_path):
    (tmp_path / "en2de.txt").write_text("ein hund\neine katze\n")
    found = system(f"{tmp_path}/{{source}}2{{target}}.txt")
    assert found.available() is None
    assert found.translate(DE, SOURCE).lines == ["ein hund", "eine katze"]
    with pytest.raises(ModelError, match=r"en-fr: .*en2fr\.txt: no such model"):
        found.check(FR)
    with pytest.raises(UsageError, match="unknown field"):
        system("runs/{pair}")
    with pytest.raises(UsageError, match="unknown field"):
        system("runs/{direction")
