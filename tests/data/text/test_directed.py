from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from deepwire.data.data_config import DataConfig, Role
from deepwire.data.languages import Direction
from deepwire.data.text.corpus import read_pairs
from deepwire.data.text.directed import directed, directions_of, opus100_prefix
from deepwire.errors import DataError

THREE = {"between": ["en"], "and": ["de", "fr"]}


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def config(train: object, directions: object = THREE, **settings: object) -> DataConfig:
    return DataConfig.model_validate({"directions": directions, "train": train, **settings})


def texts(data: DataConfig, role: Role = "train") -> dict[str, list[tuple[str, str]]]:
    """The pairs of each direction."""
    found: dict[str, list[tuple[str, str]]] = {}
    for number, corpus in enumerate(directed(data, role)):
        name = f"{corpus.source}-{corpus.target}"
        pairs = read_pairs(corpus, data, index=number)
        found.setdefault(name, []).extend((pair.source, pair.target) for pair in pairs)
    return found


def test_text_in_several_languages_serves_every_direction(tmp_path: Path) -> None:
    for language in ("de", "en", "fr"):
        write(tmp_path / f"t.{language}", [f"{language}1", f"{language}2"])
    found = texts(config(str(tmp_path / "t")))
    assert list(found) == ["en-de", "de-en", "en-fr", "fr-en"]
    assert found["en-de"] == [("en1", "de1"), ("en2", "de2")]
    assert found["fr-en"] == [("fr1", "en1"), ("fr2", "en2")]


def test_every_form_is_read_both_ways(tmp_path: Path) -> None:
    write(tmp_path / "a", ["de a"])
    write(tmp_path / "b", ["en a"])
    write(tmp_path / "p.tsv", ["x\tde b\ten b"])
    write(tmp_path / "q.jsonl", [json.dumps({"en": "en c", "deutsch": "de c"})])
    pair = {"source": "de", "target": "en"}
    data = config(
        [
            {"source_file": str(tmp_path / "a"), "target_file": str(tmp_path / "b"), **pair},
            {"tsv": str(tmp_path / "p.tsv"), "source_column": 2, "target_column": 3, **pair},
            {"jsonl": str(tmp_path / "q.jsonl"), "source_column": "deutsch", **pair},
        ],
        ["de-en", "en-de"],
    )
    ways = [("de a", "en a"), ("de b", "en b"), ("de c", "en c")]
    assert texts(data) == {"de-en": ways, "en-de": [(target, source) for source, target in ways]}
    assert directions_of(directed(data, "train"), data) == [0, 1, 0, 1, 0, 1]


def test_default_columns_are_turned_too(tmp_path: Path) -> None:
    write(tmp_path / "p.tsv", ["de\ten"])
    data = config({"tsv": str(tmp_path / "p.tsv"), "source": "de", "target": "en"}, ["en-de"])
    assert texts(data) == {"en-de": [("en", "de")]}


def test_json_lines_with_a_key_for_each_language(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", [json.dumps({"en": "one", "de": "eins", "fr": "un"})])
    found = texts(config({"jsonl": str(tmp_path / "t.jsonl")}))
    assert found["fr-en"] == [("un", "one")]
    assert found["en-de"] == [("one", "eins")]


def test_a_folder_for_each_pair_in_either_order(tmp_path: Path) -> None:
    write(tmp_path / "de-en" / "train.de", ["eins"])
    write(tmp_path / "de-en" / "train.en", ["one"])
    write(tmp_path / "en-fr" / "train.en", ["two"])
    write(tmp_path / "en-fr" / "train.fr", ["deux"])
    found = texts(config(str(tmp_path / "{pair}" / "train")))
    assert found == {
        "en-de": [("one", "eins")],
        "de-en": [("eins", "one")],
        "en-fr": [("two", "deux")],
        "fr-en": [("deux", "two")],
    }


def opus100(folder: Path) -> Path:
    """A small folder with the layout and the names of OPUS-100."""
    root = folder / "opus-100-corpus" / "v1.0"
    for pair in ("de-en", "en-fr"):
        for split in ("train", "dev", "test"):
            for language in pair.split("-"):
                write(root / "supervised" / pair / f"opus.{pair}-{split}.{language}", [f"{language} {split}"])
    for language in ("en", "hy"):
        write(root / "supervised" / "en-hy" / f"opus.en-hy-train.{language}", [f"{language} train"])
    for language in ("de", "fr"):
        write(root / "zero-shot" / "de-fr" / f"opus.de-fr-test.{language}", [f"{language} test"])
    return root


@pytest.mark.parametrize("below", ["", "v1.0"])
def test_opus_100_is_read_as_it_is(tmp_path: Path, below: str) -> None:
    opus100(tmp_path)
    corpus = {"opus100": str(tmp_path / "opus-100-corpus" / below)}
    directions = [{"between": ["en"], "and": ["de", "fr", "hy"]}]
    data = config(corpus, directions, valid=corpus, test=corpus)
    assert texts(data)["en-hy"] == [("en train", "hy train")]
    assert texts(data)["de-en"] == [("de train", "en train")]
    assert texts(data, "valid") == {
        "en-de": [("en dev", "de dev")],
        "de-en": [("de dev", "en dev")],
        "en-fr": [("en dev", "fr dev")],
        "fr-en": [("fr dev", "en dev")],
    }
    assert texts(data, "test")["fr-en"] == [("fr test", "en test")]


def test_zero_shot_text_of_opus_100_is_found(tmp_path: Path) -> None:
    root = opus100(tmp_path)
    prefix = opus100_prefix(root, Direction("fr", "de"), "test")
    assert prefix == root / "zero-shot" / "de-fr" / "opus.de-fr-test"
    assert opus100_prefix(root, Direction("fr", "de"), "dev") is None


def test_a_corpus_may_be_for_some_directions_only(tmp_path: Path) -> None:
    for language in ("de", "en", "fr"):
        write(tmp_path / f"t.{language}", [language])
    write(tmp_path / "back.tsv", ["fr made\ten real"])
    one_way = {"tsv": str(tmp_path / "back.tsv"), "source": "fr", "target": "en", "directions": "fr-en"}
    train = [
        {"prefix": str(tmp_path / "t"), "directions": [{"between": ["en"], "and": ["de", "fr"]}]},
        one_way,
    ]
    assert texts(config(train)) == {
        "en-de": [("en", "de")],
        "de-en": [("de", "en")],
        "en-fr": [("en", "fr")],
        "fr-en": [("fr", "en"), ("fr made", "en real")],
    }
    with pytest.raises(DataError, match=r"needed for en-it .*names its own: directions"):
        texts(config(str(tmp_path / "t"), ["en-it"]))


@pytest.mark.parametrize("form", ["prefix", "opus100"])
def test_a_missing_file_is_named_with_its_direction(tmp_path: Path, form: str) -> None:
    opus100(tmp_path)
    for language in ("de", "en"):
        write(tmp_path / f"t.{language}", ["x"])
    corpus = {form: str(tmp_path / ("t" if form == "prefix" else "opus-100-corpus"))}
    data = config(corpus, ["de-en", "en-it"])
    name = r"t\.it" if form == "prefix" else r"opus\.en-it-train\.en"
    with pytest.raises(DataError, match=rf"{name}: no such file .*needed for en-it"):
        texts(data)


def test_one_side_missing_is_named(tmp_path: Path) -> None:
    root = opus100(tmp_path)
    (root / "supervised" / "de-en" / "opus.de-en-train.de").unlink()
    with pytest.raises(DataError, match=r"opus\.de-en-train\.de: no such file .*needed for en-de"):
        texts(config({"opus100": str(root)}))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"source": "de"}, "directions stand instead of source and target"),
        ({"vocabulary": {"joint": False}}, "one vocabulary for all languages"),
        ({"train": {"tsv": "t.tsv"}}, "t.tsv: say which languages it holds"),
        ({"train": {"jsonl": "t", "source_column": "a"}}, "say which languages it holds"),
        ({"train": {"tsv": "-", "source": "de", "target": "en"}}, "stdin"),
        ({"train": {"prefix": "t", "source": "de", "target": "it"}}, "no direction has the language 'it'"),
        ({"train": {"prefix": "t", "languages": ["de", "fr"]}}, "none of the directions is between"),
        ({"train": {"prefix": "t", "languages": ["de", "en"]}}, "no corpus of train has text for .* en-fr"),
        ({"train": {"prefix": "t", "source": "deutsch", "target": "en"}}, "'deutsch' is not a language tag"),
        ({"train": {"prefix": "t", "source": "de"}}, "source and target of a corpus belong together"),
        ({"train": {"prefix": "t", "source": "de", "target": "en", "languages": ["de", "en"]}}, "either"),
        ({"train": {"prefix": "t", "directions": ["de-fr"]}}, "t: de-fr is not one of data.directions"),
        (
            {"train": {"prefix": "t", "source": "de", "target": "en", "directions": ["en-fr"]}},
            "t: en-fr is not among its languages",
        ),
        ({"train": {"prefix": "t", "directions": ["de-en"]}}, "no corpus of train has text for .* en-de"),
        ({"directions": ["en-deutsch"]}, "'en-deutsch' is not a direction"),
        ({"directions": []}, "at least 1 item"),
        ({"sampling_temperature": 0.5}, "greater than or equal to 1"),
        ({"tag": "front"}, "'source', 'target', 'both' or 'none'"),
    ],
)
def test_impossible_directions_are_refused_by_name(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DataConfig.model_validate({"directions": THREE, "train": "t", **settings})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tag": "both"}, "need directions"),
        ({"sampling_temperature": 5}, "need directions"),
        ({"vocabulary": {"balance_temperature": 5}}, "needs directions"),
        ({"valid": ["a", "b"]}, "several need directions"),
        ({"train": {"opus100": "x"}}, "need data.directions"),
        ({"train": {"prefix": "t", "directions": ["de-en"]}}, "need data.directions"),
        ({"train": {"prefix": "t", "source": "de", "target": "en"}}, "need data.directions"),
    ],
)
def test_settings_of_directions_need_directions(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DataConfig.model_validate({"source": "de", "target": "en", "train": "t", **settings})


def test_without_directions_corpora_come_as_they_are() -> None:
    data = DataConfig.model_validate({"source": "de", "target": "en", "train": ["a", "b"], "valid": "v"})
    assert directed(data, "train") == data.train
    assert directed(data, "valid") == data.valid
    assert directed(data, "test") == []
    assert directions_of(data.train, data) is None


def test_settings_come_back_from_what_a_run_records() -> None:
    data = config(
        ["t", {"tsv": "x", "source": "de", "target": "en", "directions": ["en-de"]}],
        tag="both",
        sampling_temperature=5,
    )
    assert DataConfig.model_validate(data.model_dump(mode="json")) == data
