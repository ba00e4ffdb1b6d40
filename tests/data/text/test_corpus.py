from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from deepwire.data.data_config import DataConfig
from deepwire.data.text.corpus import read_pairs
from deepwire.data.text.files import ReadNotes
from deepwire.data.text.pairs import Pair
from deepwire.errors import DataError


def read(corpus: dict[str, object], notes: ReadNotes | None = None, **settings: object) -> list[Pair]:
    data = DataConfig.model_validate({"source": "de", "target": "en", "train": corpus, **settings})
    return list(read_pairs(data.train[0], data, notes=notes))


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


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (b"", b"", r"t\.de and .*t\.en: are empty"),
        (b"", b"a\n", r"t\.de: is empty"),
        (b"a\n", b"", r"t\.en: is empty"),
    ],
)
def test_empty_files_are_refused(tmp_path: Path, source: bytes, target: bytes, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(two_files(tmp_path, source, target))


def test_a_bad_line_spoils_its_pair_only(tmp_path: Path) -> None:
    corpus = two_files(tmp_path, b"a\nb\xff\nc\nd\n", b"w\nx\ny\0\nz\n")
    pairs = read(corpus, on_bad_utf8="skip")
    assert [pair.fault for pair in pairs] == ["", "bad_utf8", "nul", ""]
    assert [pair.line for pair in pairs] == [1, 2, 3, 4]
    assert texts(pairs)[3] == ("d", "z")


def test_a_side_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.de").write_bytes(b"a\n")
    with pytest.raises(DataError, match=r"t\.en: no such file"):
        read({"prefix": tmp_path / "t"})


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
        (b"a\tx\nb\ty\tz\n", {}, r"t\.tsv:2: 3 columns where 2 are expected"),
        (b"a\n", {}, r"t\.tsv:1: 1 column where 2 are expected"),
        (b"", {}, r"t\.tsv: is empty"),
        (b"de\ten\n", {"source_column": "de", "target_column": "en"}, r"t\.tsv: is empty"),
        (b"", {"source_column": "de", "target_column": "en"}, "no header line"),
        (b"de\ten\na\tx\n", {"source_column": "deu"}, r"t\.tsv:1: no column deu \(the columns are: de, en"),
        (b"de\ten\na\tx\n", {"source_column": "de", "target_column": 3}, "no column 3"),
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
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"de": "a"}', r"no key 'en' \(found de;"),
        ('{"de": "a", "en": null}', "no key 'en'"),
        ('{"de": "a", "en": 3}', "'en' is not a text"),
        ("[" * 200_000, "nested too deep"),
        ('{"de": ' + "9" * 5000 + "}", "a number too long"),
        (r'{"de": "\ud800", "en": "x"}', "surrogate"),
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
    notes = ReadNotes()
    pairs = read({"jsonl": path}, notes, on_bad_utf8="skip")
    assert texts(pairs)[0] == ("a b c", "ü")
    assert [pair.fault for pair in pairs] == ["", "nul", "bad_utf8", ""]
    assert pairs[3].source == "😀"
    assert notes.joined_lines == 1
    assert texts(read({"jsonl": path}, on_bad_utf8="replace"))[2] == ("\ufffda", "x")


def test_stdin_may_be_a_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").write_bytes(b"a\n")
    (tmp_path / "t.en").write_bytes(b"x\n")
    with (tmp_path / "in").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert texts(read({"source_file": "-", "target_file": tmp_path / "t.en"})) == [("a", "x")]
