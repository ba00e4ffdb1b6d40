from __future__ import annotations

import math

import pytest
from sacrebleu.metrics import BLEU

from deepwire.evaluation.metric_choice import MetricOptions, corpus_score


def tokenized(lines: list[str]) -> list[str]:
    return [line.replace(",", " ,").replace(".", " .") for line in lines]


def test_ordinary_text_scores_as_in_sacrebleu_without_tokenizer_and_smoothing(reference, damaged):
    theirs = BLEU(tokenize="none", smooth_method="none", force=True)
    for rate in (0.1, 0.4):
        hypotheses, references = (
            tokenized(damaged(rate, 1)),
            [tokenized(reference), tokenized(damaged(0.1, 9))],
        )
        expected = theirs.corpus_score(hypotheses, references)
        score = corpus_score("multi-bleu", hypotheses, references)
        assert score.value == pytest.approx(expected.score, abs=1e-9)
        assert score.details["precisions"] == pytest.approx(expected.precisions)


def test_a_score_by_hand():
    score = corpus_score("multi-bleu", ["a b c d e x"], ["a b c d e f g"])
    precisions = (5 / 6, 4 / 5, 3 / 4, 2 / 3)
    penalty = math.exp(1 - 7 / 6)
    assert score.value == pytest.approx(100 * penalty * math.prod(precisions) ** 0.25)


def test_no_break_spaces_belong_to_words_and_only_ascii_changes_case():
    spaced = corpus_score("multi-bleu", ["a\u00a0b c d e f"], ["a b c d e f"])
    assert spaced.details["hypothesis_length"] == 5
    lower = MetricOptions(lowercase=True)
    assert corpus_score("multi-bleu", ["A B C D"], ["a b c d"], lower).value == pytest.approx(100)
    assert corpus_score("multi-bleu", ["Ä B C D E"], ["ä b c d e"], lower).details["precisions"][0] == 80


def test_splitting_hyphens_gives_partial_credit():
    hypotheses, answers = ["a well-known old singer sings here"], ["a well-loved old singer sings here"]
    split = corpus_score("multi-bleu", hypotheses, answers, MetricOptions(split_hyphens=True))
    assert split.details["hypothesis_length"] == 8
    assert split.details["precisions"][0] == pytest.approx(100 * 7 / 8)
    whole = corpus_score("multi-bleu", hypotheses, answers)
    assert whole.details["precisions"][0] == pytest.approx(100 * 5 / 6)
    assert "hyphens:split" in split.signature


@pytest.mark.parametrize(
    ("text", "length"), [("aa-bb-cc", 5), ("a - b", 3), ("-a b-", 2), ("a-b-c", 3), ("a--b", 3)]
)
def test_a_hyphen_is_split_between_two_characters_that_are_not_shared(text, length):
    score = corpus_score("multi-bleu", [text], [text], MetricOptions(split_hyphens=True))
    assert score.details["hypothesis_length"] == length
