"""A prepared text, and the models made of it, know what their languages look like."""

from __future__ import annotations

import pytest

from deepwire.data.data_config import DataConfig
from deepwire.data.prepare.prepared import prepare
from deepwire.data.vocabulary import PROFILES, Vocabularies
from deepwire.errors import ModelError

LINES = {
    "de": [f"Der Hund läuft über die Wiese Nummer {number}" for number in range(60)],
    "en": [f"The dog runs across meadow number {number}" for number in range(60)],
    "fr": [f"Le chien court dans le pré numéro {number}" for number in range(60)],
}


def prepared(folder, **settings):
    for language, lines in LINES.items():
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in lines))
    data = {"train": folder / "train", "vocabulary": {"type": "bpe", "size": 340}, **settings}
    return prepare(DataConfig.model_validate({**data, "prepared": folder / "prepared"}), seed=1)


def best(vocabularies, text):
    return next(iter(vocabularies.profiles.shares(text)))


def test_both_sides_of_a_run(tmp_path):
    made = prepared(tmp_path, source="de", target="en").vocabularies
    assert set(made.profiles.labels) == {"de", "en"}
    assert [best(made, text) for text in ("die Wiese", "a meadow")] == ["de", "en"]
    made.save(tmp_path / "copy")
    again = Vocabularies.load(tmp_path / "copy")
    assert again.profiles == made.profiles
    (tmp_path / "copy" / PROFILES).unlink()  # as an earlier version left it
    without = Vocabularies.load(tmp_path / "copy")
    assert without.profiles is None
    assert without.digest == made.digest
    (tmp_path / "copy" / PROFILES).write_bytes(b"x")
    with pytest.raises(ModelError, match=f"{PROFILES}: damaged"):
        Vocabularies.load(tmp_path / "copy")


def test_all_languages_of_a_run_with_directions(tmp_path):
    made = prepared(
        tmp_path, directions=["en-de", "en-fr"], train={"prefix": tmp_path / "train"}
    ).vocabularies
    assert set(made.profiles.labels) == set(LINES)
    assert [best(made, text) for text in ("die Wiese", "a meadow", "un chien")] == ["de", "en", "fr"]


def test_a_run_with_the_vocabulary_of_another_knows_its_own_languages(tmp_path):
    first = prepared(tmp_path, source="de", target="en").folder / "vocabulary"
    other = prepared(tmp_path, source="fr", target="en", vocabulary={"type": "existing", "folder": first})
    assert set(other.vocabularies.profiles.labels) == {"fr", "en"}
