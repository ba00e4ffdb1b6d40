"""Text of any direction from what run files and the command line name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepwire.data.data_config import CorpusConfig
from deepwire.data.languages import Direction
from deepwire.errors import DataError, ModelError, UsageError
from deepwire.evaluation.multilingual.directed_texts import (
    DirectedTexts,
    texts_at,
    texts_of_run,
)
from deepwire.evaluation.multilingual.translation_systems import (
    StoredSystem,
    digest_of,
    open_system,
    read_stored,
    store_in,
)
from deepwire.evaluation.texts import SearchSettings, Text

EN_DE, DE_EN, DE_FR, EN_CS = map(Direction.parse, ("en-de", "de-en", "de-fr", "en-cs"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for language, word in (("de", "hund"), ("en", "dog"), ("fr", "chien")):
        for part in ("a", "b"):
            Path(f"{part}.{language}").write_text(f"{word} {part}\n")
    return tmp_path


def lines(texts: DirectedTexts, direction: Direction) -> list[list[str]]:
    return [text.lines for text in texts.read(direction)]


def test_several_ways_of_one_text_are_read_in_any_direction() -> None:
    texts = texts_at("a", "test")
    assert lines(texts, EN_DE) == [["dog a"], ["hund a"]]
    assert lines(texts, DE_FR) == [["hund a"], ["chien a"]]
    assert not texts.has(EN_CS)
    with pytest.raises(DataError, match=r"a\.cs: no such file"):
        texts.read(EN_CS)


def test_several_corpora_are_one_text_and_each_knows_its_languages() -> None:
    corpora = (
        CorpusConfig(prefix=Path("a"), languages=["de", "en", "fr"]),
        CorpusConfig(source_file=Path("b.de"), target_file=Path("b.en"), source="de", target="en"),
    )
    texts = DirectedTexts("both", corpora)
    assert lines(texts, EN_DE) == [["dog a", "dog b"], ["hund a", "hund b"]]
    assert lines(texts, DE_FR) == [["hund a"], ["chien a"]]
    with pytest.raises(DataError, match="both: no test set for en-cs"):
        texts.read(EN_CS)


def test_further_references_are_those_of_their_own_direction(folder: Path) -> None:
    for number in (0, 1, 2):
        Path(f"c.en.{number}").write_text(f"dog {number}\n")
    Path("c.de").write_text("hund\n")
    run = run_file(folder, {"source": "de", "target": "en", "train": "a", "test": "c"})
    source, reference = texts_of_run(run, "test").read(DE_EN)
    assert source.lines == ["hund"]
    assert reference.answers == [["dog 0"], ["dog 1"], ["dog 2"]]
    source, reference = texts_of_run(run, "test").read(EN_DE)
    assert (source.lines, reference.answers) == (["dog 0"], [["hund"]])


def run_file(folder: Path, data: dict[str, object]) -> str:
    (folder / "run").mkdir()
    (folder / "run" / "config.resolved.json").write_text(json.dumps({"data": data}))
    return str(folder / "run")


def test_the_run_file_names_the_texts(folder: Path) -> None:
    run = run_file(folder, {"directions": ["en-de", "de-en"], "train": "a", "test": ["a", "b"]})
    assert lines(texts_of_run(run, "test"), DE_EN) == [["hund a", "hund b"], ["dog a", "dog b"]]
    assert lines(texts_of_run(f"{run}@avg5", "train"), EN_DE) == [["dog a"], ["hund a"]]


def test_a_run_of_one_direction_can_be_read_the_other_way(folder: Path) -> None:
    run = run_file(folder, {"source": "en", "target": "de", "train": "a", "test": "b"})
    assert lines(texts_of_run(run, "test"), DE_EN) == [["hund b"], ["dog b"]]


DE, FR = Direction("en", "de"), Direction("en", "fr")
SOURCE = Text("source", ["a dog", "a cat"])


def system(name: str | Path):
    return open_system(str(name), SearchSettings({}), print)


def test_what_was_kept_is_found_again_only_if_nothing_changed(tmp_path):
    made = digest_of(["model 1", DE], SOURCE.lines)
    store_in(tmp_path / "new" / "hyps", "runs/x", [DE], {DE: 7}).keep(DE, ["ein hund", ""], made)
    again = store_in(tmp_path / "new" / "hyps", "runs/x", [DE], {DE: 7})
    assert again.kept(DE, made) == ["ein hund", ""]
    assert again.kept(DE, digest_of(["model 2", DE], SOURCE.lines)) is None
    assert again.kept(DE, digest_of(["model 1", DE], ["a dog", "a cow"])) is None
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


def test_translations_of_unknown_origin_are_not_touched(tmp_path):
    folder = tmp_path / "translations"
    folder.mkdir()
    (folder / "en-de.hyp").write_text("ein hund\n")
    with pytest.raises(UsageError, match="of unknown origin"):
        store_in(folder, "runs/x", None, {})
    assert [path.name for path in folder.iterdir()] == ["en-de.hyp"]
    assert read_stored(folder).trained is None


UNREADABLE = '{"system": "x", "trained": ["English"], "training_pairs": {}, "made": {}}'


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"system": "x", "trained": 3}', UNREADABLE])
def test_a_damaged_record_is_named(tmp_path, damage):
    (tmp_path / "en-de.hyp").write_text("ein hund\n")
    (tmp_path / "system.json").write_text(damage)
    with pytest.raises(DataError, match=r"system\.json: is damaged"):
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
