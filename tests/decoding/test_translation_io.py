from __future__ import annotations

import gzip
import json

import pytest

from deepwire.decoding.translation_io import (
    Candidate,
    Request,
    Translation,
    format_json,
    format_n_best,
    format_plain,
    format_scored,
    json_requests,
    read_text,
    sentence_pairs,
    text_requests,
)
from deepwire.errors import DataError

ANSWER = Translation(
    3,
    Request("Guten Tag", fields={"id": 7, "text": "Guten Tag", "odd": "\ud800"}),
    (Candidate("good day", ("good", "day"), -1.5, -1.0), Candidate("hello", ("hello",), -2.0, -1.75)),
)


@pytest.fixture
def file(tmp_path):
    def write(content: bytes, name="text"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def test_one_text_for_each_line_whatever_it_holds(file):
    content = (
        "\ufeffeins\r\nzwei\u2028drei\n\nvier\x85\rfünf\n</s> <pad>\n".encode() + b"\xff\xfe\na\0b\nlast"
    )
    warnings: list[str] = []
    texts = list(read_text(file(content), warnings.append))
    assert len(texts) == content.count(b"\n") + 1
    assert texts[:5] == ["eins", "zwei\u2028drei", "", "vier\x85\rfünf", "</s> <pad>"]
    assert texts[5:] == ["\ufffd\ufffd", "a b", "last"]
    name = str(file(content))
    assert [warning.split(": ")[0] for warning in warnings] == [f"{name}:7", name]


def test_a_line_of_megabytes_keeps_its_place(file):
    warnings: list[str] = []
    texts = list(read_text(file(b"a\n" + b"x" * 3_000_000 + b"\nb\n"), warnings.append))
    assert (len(texts), texts[0], texts[2]) == (3, "a", "b")
    assert texts[1].startswith("xxx")
    assert [":2: " in warning for warning in warnings] == [True]


def test_compressed_text_and_prefixes(file):
    path, prefixes = file(gzip.compress(b"a\nb\n"), "text.gz"), file(b"\nvon\n", "prefixes")
    requests = list(text_requests(path, prefixes, print))
    assert [(request.text, request.prefix) for request in requests] == [("a", ""), ("b", "von")]


def test_unequal_counts_name_both_files(file):
    one, other = file(b"a\nb\nc\n", "one"), file(b"a\n", "other")
    with pytest.raises(DataError, match=r"line counts differ: .*one 3, .*other 1$"):
        list(sentence_pairs(one, other, print))


def test_json_lines(file):
    path = file(b'{"id": 1, "text": "a", "prefix": "b"}\n{"text": "\\ud800 \\u0000x\\ny"}\n')
    first, second = json_requests(path, print)
    assert (first.text, first.prefix, first.fields["id"]) == ("a", "b", 1)
    assert second.text == "\ufffd  x y"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "text:2: not JSON"),
        ("", "text:2: not JSON"),
        ("[1]", "text:2: no field text"),
        ('{"text": "a", "x": NaN}', "text:2: not JSON: NaN"),
        ('{"text": "a", "x": -1e999}', "text:2: not JSON: -1e999 is too large a number"),
        ('{"text": "a", "text": "b"}', "text:2: not JSON: a key comes twice"),
        ('{"text": 5}', "text:2: text is not a string"),
        ('{"text": "a", "prefix": 1}', "text:2: prefix must be a string"),
        ("[" * 100_000, "text:2: not JSON"),
    ],
)
def test_wrong_json_names_the_line(file, line, message):
    path = file(f"{json.dumps({'text': 'a'})}\n{line}\n".encode())
    with pytest.raises(DataError, match=message):
        list(json_requests(path, print))


def test_plain_and_scores():
    assert format_plain(ANSWER) == "good day"
    assert format_scored(ANSWER) == "-1.0000\tgood day"


def test_n_best_counts_lines_from_zero():
    assert format_n_best(ANSWER).split("\n") == [
        "2 ||| good day ||| Score= -1.5000 ||| -1.0000",
        "2 ||| hello ||| Score= -2.0000 ||| -1.7500",
    ]


def test_json_keeps_other_fields_and_is_utf8():
    line = format_json(ANSWER)
    line.encode()
    record = json.loads(line)
    assert (record["id"], record["odd"], record["text"]) == (7, "\ud800", "Guten Tag")
    assert (record["line"], record["translation"], record["score"]) == (3, "good day", -1.0)
    assert [one["translation"] for one in record["n_best"]] == ["good day", "hello"]
