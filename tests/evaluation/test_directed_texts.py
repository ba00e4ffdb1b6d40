"""Text of any direction from what run files and the command line name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepwire.data.data_config import CorpusConfig
from deepwire.data.languages import Direction
from deepwire.errors import DataError
from deepwire.evaluation.texts import DirectedTexts, texts_at, texts_of_run

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
    texts = texts_at("a")
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
    source, reference = texts_of_run(run).read(DE_EN)
    assert source.lines == ["hund"]
    assert reference.answers == [["dog 0"], ["dog 1"], ["dog 2"]]
    source, reference = texts_of_run(run).read(EN_DE)
    assert (source.lines, reference.answers) == (["dog 0"], [["hund"]])


def run_file(folder: Path, data: dict[str, object]) -> str:
    (folder / "run").mkdir()
    (folder / "run" / "config.resolved.json").write_text(json.dumps({"data": data}))
    return str(folder / "run")


def test_the_run_file_names_the_texts(folder: Path) -> None:
    run = run_file(folder, {"directions": ["en-de", "de-en"], "train": "a", "test": ["a", "b"]})
    assert lines(texts_of_run(run), DE_EN) == [["hund a", "hund b"], ["dog a", "dog b"]]
    assert lines(texts_of_run(f"{run}@avg5"), EN_DE) == [["dog a", "dog b"], ["hund a", "hund b"]]


def test_a_run_of_one_direction_can_be_read_the_other_way(folder: Path) -> None:
    run = run_file(folder, {"source": "en", "target": "de", "train": "a", "test": "b"})
    assert lines(texts_of_run(run), DE_EN) == [["hund b"], ["dog b"]]
