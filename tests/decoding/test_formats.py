from __future__ import annotations

import json

from deepwire.decoding import formats
from deepwire.decoding.scoring import PairScore
from deepwire.decoding.translation import Candidate, Request, Translation

ANSWER = Translation(
    3,
    Request("Guten Tag", fields={"id": 7, "text": "Guten Tag", "odd": "\ud800"}),
    (Candidate("good day", ("good", "day"), -1.5, -1.0), Candidate("hello", ("hello",), -2.0, -1.75)),
)


def test_plain_and_scores():
    assert formats.plain(ANSWER) == "good day"
    assert formats.scored(ANSWER) == "-1.0000\tgood day"


def test_n_best_counts_lines_from_zero():
    assert formats.n_best(ANSWER).split("\n") == [
        "2 ||| good day ||| Score= -1.5000 ||| -1.0000",
        "2 ||| hello ||| Score= -2.0000 ||| -1.7500",
    ]


def test_json_keeps_other_fields_and_is_utf8():
    line = formats.as_json(ANSWER)
    line.encode()
    record = json.loads(line)
    assert (record["id"], record["odd"], record["text"]) == (7, "\ud800", "Guten Tag")
    assert (record["line"], record["translation"], record["score"]) == (3, "good day", -1.0)
    assert [one["translation"] for one in record["n_best"]] == ["good day", "hello"]


def test_pair_scores():
    score = PairScore(1, -3.0, ("a",), (-1.0, -2.0))
    assert formats.pair_score(score, normalize=False, per_token=False) == "-3.000000"
    assert formats.pair_score(score, normalize=True, per_token=True) == "-1.500000\t-1.000000 -2.000000"
    record = json.loads(formats.pair_score_json(score, normalize=False, per_token=True))
    assert record["subwords"] == ["a", "</s>"]
    assert record["log_probabilities"] == [-1.0, -2.0]
    empty = PairScore(2, 0.0, (), (), "empty_target")
    assert formats.pair_score(empty, normalize=True, per_token=True) == "0.000000\t"
    assert json.loads(formats.pair_score_json(empty, normalize=False, per_token=False)) == {
        "line": 2,
        "score": 0.0,
        "tokens": 0,
        "flag": "empty_target",
    }
