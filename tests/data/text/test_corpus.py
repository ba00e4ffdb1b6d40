from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from deepwire.data.data_config import DataConfig, Role
from deepwire.data.text.corpus import directed, directions_of, read_pairs
from deepwire.data.text.pairs import Pair
from deepwire.errors import DataError

THREE = {"between": ["en"], "and": ["de", "fr"]}


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def config(train: object, directions: object = THREE, **settings: object) -> DataConfig:
    return DataConfig.model_validate({"directions": directions, "train": train, **settings})


def texts_by_direction(data: DataConfig, role: Role = "train") -> dict[str, list[tuple[str, str]]]:
    """The pairs of each direction."""
    found: dict[str, list[tuple[str, str]]] = {}
    for corpus in directed(data, role):
        name = f"{corpus.source}-{corpus.target}"
        pairs = read_pairs(corpus, data)
        found.setdefault(name, []).extend((pair.source, pair.target) for pair in pairs)
    return found


def test_text_in_several_languages_serves_every_direction(tmp_path: Path) -> None:
    for language in ("de", "en", "fr"):
        write(tmp_path / f"t.{language}", [f"{language}1", f"{language}2"])
    found = texts_by_direction(config(str(tmp_path / "t")))
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
    assert texts_by_direction(data) == {"de-en": ways, "en-de": [(target, source) for source, target in ways]}
    assert directions_of(directed(data, "train"), data) == [0, 1, 0, 1, 0, 1]


def test_a_folder_for_each_pair_in_either_order(tmp_path: Path) -> None:
    write(tmp_path / "de-en" / "train.de", ["eins"])
    write(tmp_path / "de-en" / "train.en", ["one"])
    write(tmp_path / "en-fr" / "train.en", ["two"])
    write(tmp_path / "en-fr" / "train.fr", ["deux"])
    found = texts_by_direction(config(str(tmp_path / "{pair}" / "train")))
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
    assert texts_by_direction(data)["en-hy"] == [("en train", "hy train")]
    assert texts_by_direction(data)["de-en"] == [("de train", "en train")]
    assert texts_by_direction(data, "valid") == {
        "en-de": [("en dev", "de dev")],
        "de-en": [("de dev", "en dev")],
        "en-fr": [("en dev", "fr dev")],
        "fr-en": [("fr dev", "en dev")],
    }
    assert texts_by_direction(data, "test")["fr-en"] == [("fr test", "en test")]


def test_a_corpus_may_be_for_some_directions_only(tmp_path: Path) -> None:
    for language in ("de", "en", "fr"):
        write(tmp_path / f"t.{language}", [language])
    write(tmp_path / "back.tsv", ["fr made\ten real"])
    one_way = {"tsv": str(tmp_path / "back.tsv"), "source": "fr", "target": "en", "directions": "fr-en"}
    train = [
        {"prefix": str(tmp_path / "t"), "directions": [{"between": ["en"], "and": ["de", "fr"]}]},
        one_way,
    ]
    assert texts_by_direction(config(train)) == {
        "en-de": [("en", "de")],
        "de-en": [("de", "en")],
        "en-fr": [("en", "fr")],
        "fr-en": [("fr", "en"), ("fr made", "en real")],
    }
    with pytest.raises(DataError, match=r"needed for en-it .*names its own: directions"):
        texts_by_direction(config(str(tmp_path / "t"), ["en-it"]))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"source": "de"}, "directions stand instead of source and target"),
        ({"train": {"tsv": "t.tsv"}}, "t.tsv: say which languages it holds"),
        ({"train": {"prefix": "t", "languages": ["de", "fr"]}}, "none of the directions is between"),
        ({"train": {"prefix": "t", "source": "deutsch", "target": "en"}}, "'deutsch' is not a language tag"),
        ({"train": {"prefix": "t", "source": "de", "target": "en", "languages": ["de", "en"]}}, "either"),
        (
            {"train": {"prefix": "t", "source": "de", "target": "en", "directions": ["en-fr"]}},
            "t: en-fr is not among its languages",
        ),
        ({"directions": ["en-deutsch"]}, "'en-deutsch' is not a direction"),
        ({"sampling_temperature": 0.5}, "greater than or equal to 1"),
    ],
)
def test_impossible_directions_are_refused_by_name(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DataConfig.model_validate({"directions": THREE, "train": "t", **settings})


def read(corpus: dict[str, object], **settings: object) -> list[Pair]:
    data = DataConfig.model_validate({"source": "de", "target": "en", "train": corpus, **settings})
    return list(read_pairs(data.train[0], data))


def texts(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


def two_files(folder: Path, source: bytes, target: bytes) -> dict[str, object]:
    (folder / "t.de").write_bytes(source)
    (folder / "t.en").write_bytes(target)
    return {"prefix": folder / "t"}


def test_two_sides_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "t.de.gz").write_bytes(gzip.compress(b"a\n\nc\n"))
    (tmp_path / "t.en").write_bytes(b"x\ny\nz")
    assert read({"prefix": tmp_path / "t"}) == [
        Pair(1, "a", "x", 0),
        Pair(2, "", "y", 0),
        Pair(3, "c", "z", 0),
    ]


@pytest.mark.parametrize(("left", "right"), [(1000, 999), (3, 100_000), (1, 2)])
def test_different_line_counts_name_both(tmp_path: Path, left: int, right: int) -> None:
    corpus = two_files(tmp_path, b"a\n" * left, b"b\n" * right)
    with pytest.raises(DataError, match=rf"line counts differ: .*t\.de {left}, .*t\.en {right}") as error:
        read(corpus)
    assert error.value.exit_code == 3


def test_a_bad_line_spoils_its_pair_only(tmp_path: Path) -> None:
    corpus = two_files(tmp_path, b"a\nb\xff\nc\nd\n", b"w\nx\ny\0\nz\n")
    pairs = read(corpus, on_bad_utf8="skip")
    assert [pair.fault for pair in pairs] == ["", "bad_utf8", "nul", ""]
    assert [pair.line for pair in pairs] == [1, 2, 3, 4]
    assert texts(pairs)[3] == ("d", "z")


def test_tsv_columns_by_number_and_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(b"id\tenglish\tdeutsch\n1\tx\ta\n\n2\ty\t\n")
    named = read({"tsv": path, "source_column": "deutsch", "target_column": "english"})
    assert named == [Pair(2, "a", "x", 0), Pair(3, "", "", 0), Pair(4, "", "y", 0)]
    numbered = read({"tsv": path, "source_column": 3, "target_column": 2})
    assert texts(numbered)[1:] == texts(named)
    assert texts(read({"tsv": path}))[1] == ("1", "x")


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        (b"a\tx\nb\n", {}, r"t\.tsv:2: 1 column where 2 are expected"),
        (b"a\n", {}, r"t\.tsv:1: 1 column where 2 are expected"),
        (b"de\ten\n", {"source_column": "de", "target_column": "en"}, r"t\.tsv: is empty"),
        (b"de\ten\na\tx\n", {"source_column": "deu"}, r"t\.tsv:1: no column deu \(the columns are: de, en"),
        (b"de\ten\tde\na\tx\tb\n", {"source_column": "de"}, r"t\.tsv:1: two columns are named de"),
    ],
)
def test_wrong_tsv_is_an_error(tmp_path: Path, text: bytes, columns: dict[str, object], said: str) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(text)
    with pytest.raises(DataError, match=said):
        read({"tsv": path, **columns})


def test_jsonl_keys_default_to_the_languages_and_may_be_nested(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"de": "ä", "en": "x", "n": 1}) + "\n\n" + '{"en": "y", "de": "b"}')
    assert read({"jsonl": path}) == [Pair(1, "ä", "x", 0), Pair(2, "", "", 0), Pair(3, "b", "y", 0)]
    path.write_text(json.dumps({"translation": {"de": "a", "en": "x"}}))
    nested = {"source_column": "translation.de", "target_column": "translation.en"}
    assert texts(read({"jsonl": path, **nested})) == [("a", "x")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("null", "not a JSON object"),
        ('{"de": "a", "en": null}', "'en' is null, not a text"),
        ("[" * 200_000, "not usable JSON"),
        ('{"de": ' + "9" * 5000 + "}", "not usable JSON"),
    ],
)
def test_wrong_jsonl_is_an_error_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"de": "a", "en": "x"}\n' + line)
    with pytest.raises(DataError, match=rf"^{path}:2: .*{said}"):
        read({"jsonl": path})


def test_jsonl_escapes_become_one_line_of_text(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lines = [
        r'{"de": "a\nb\r\nc", "en": "\u00fc"}',
        r'{"de": "\u0000", "en": "x"}',
        r'{"de": "\ud800a", "en": "x"}',
    ]
    path.write_text("\n".join([*lines, r'{"de": "\ud83d\ude00", "en": "x"}']))
    pairs = read({"jsonl": path}, on_bad_utf8="skip")
    assert texts(pairs)[0] == ("a b c", "ü")
    assert [pair.fault for pair in pairs] == ["", "nul", "bad_utf8", ""]
    assert pairs[3].source == "😀"
    assert texts(read({"jsonl": path}, on_bad_utf8="replace"))[2] == ("\ufffda", "x")
