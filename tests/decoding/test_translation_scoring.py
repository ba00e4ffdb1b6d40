from __future__ import annotations

import json
import math

import pytest

from deepwire.data.vocabulary import EOS
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.scoring import PairScore, format_pair_score, format_pair_score_json
from deepwire.decoding.translator import Translator

PAIRS = [("abc", "cba"), ("", "a"), ("abcdef", "aaaaaaaaaaaaaaaa"), ("a", " "), ("ddd", "b")]


def translator(toys, warnings=None, **config):
    return Translator(
        [toys.Model()],
        toys.vocabularies(12),
        DecodingConfig.model_validate(config),
        warn=(warnings if warnings is not None else []).append,
    )


def test_the_sum_over_the_subwords_and_eos(toys):
    warnings: list[str] = []
    tool = translator(toys, warnings)
    scores = list(tool.score(PAIRS))
    assert [score.line for score in scores] == [1, 2, 3, 4, 5]
    assert [score.flag for score in scores] == [None, "empty_source", None, "empty_target", None]
    assert warnings == ["line 2: empty source, the score is 0", "line 4: empty target, the score is 0"]
    vocabulary = tool.vocabularies.source
    for score, (source, target) in zip(scores, PAIRS, strict=True):
        if score.flag is not None:
            assert (score.log_probability, score.mean, score.tokens) == (0.0, 0.0, ())
            continue
        ids = vocabulary.encode(target)
        expected = toys.log_probability(tool.model, [*vocabulary.encode(source), EOS], tuple(ids))
        assert score.log_probability == pytest.approx(expected, abs=1e-4)
        assert score.log_probability == pytest.approx(sum(score.token_log_probabilities))
        assert len(score.token_log_probabilities) == len(score.tokens) + 1 == len(ids) + 1
        assert score.mean == pytest.approx(score.log_probability / (len(ids) + 1))


def test_translations_score_what_the_search_said(toys):
    tool = translator(toys, beam=5, n_best=3)
    lines = ["abc", "fedcba", "a"]
    for answer in tool.translations(lines):
        pairs = [(answer.request.text, candidate.text) for candidate in answer.candidates]
        for candidate, score in zip(answer.candidates, tool.score(pairs), strict=True):
            assert score.log_probability == pytest.approx(candidate.log_probability, abs=1e-4)


def test_a_target_beyond_all_limits_is_flagged(toys):
    warnings: list[str] = []
    tool = translator(toys, warnings, max_source_length=5)
    scores = list(tool.score([("abc", "a" * 20), ("abc", "a" * 21), ("abc", "ab" * 500_000)]))
    assert [score.flag for score in scores] == [None, "long_target", "long_target"]
    assert scores[1].log_probability == 0
    assert warnings == [f"line {line}: long target, the score is 0" for line in (2, 3)]


def test_a_source_that_is_cut_says_so(toys):
    warnings: list[str] = []
    tool = translator(toys, warnings, max_source_length=5)
    whole, cut, same = tool.score([("abcde", "abc"), ("abcdef", "abc"), ("abcde", "abc")])
    assert (whole.flag, cut.flag, same.flag) == (None, "long_source", None)
    assert cut.log_probability == whole.log_probability != 0, "that of the beginning"
    assert warnings == ["line 2: longer than 5 subwords, the rest is left out"]
    record = json.loads(format_pair_score_json(cut, normalize=False, per_token=True))
    assert record["flag"] == "long_source"
    assert len(record["subwords"]) == len(record["log_probabilities"]) == 4


def test_pair_scores():
    score = PairScore(1, -3.0, ("a",), (-1.0, -2.0))
    assert format_pair_score(score, normalize=False, per_token=False) == "-3.000000"
    assert format_pair_score(score, normalize=True, per_token=True) == "-1.500000\t-1.000000 -2.000000"
    record = json.loads(format_pair_score_json(score, normalize=False, per_token=True))
    assert record["subwords"] == ["a", "</s>"]
    assert record["log_probabilities"] == [-1.0, -2.0]
    impossible = PairScore(1, -math.inf, ("a",), (-math.inf, -2.0))
    record = json.loads(format_pair_score_json(impossible, normalize=False, per_token=True))
    assert (record["score"], record["log_probabilities"]) == (None, [None, -2.0])
    empty = PairScore(2, 0.0, (), (), "empty_target")
    assert format_pair_score(empty, normalize=True, per_token=True) == "0.000000\t"
    assert json.loads(format_pair_score_json(empty, normalize=False, per_token=False)) == {
        "line": 2,
        "score": 0.0,
        "tokens": 0,
        "flag": "empty_target",
    }
