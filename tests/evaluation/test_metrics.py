from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER

from deepwire.errors import DataError, UsageError
from deepwire.evaluation.metrics import METRICS, MetricOptions, corpus_score, make_metric, sentence_scores

SACREBLEU = {
    "bleu": lambda: BLEU(),
    "chrf": lambda: CHRF(),
    "chrf++": lambda: CHRF(word_order=2),
    "ter": lambda: TER(),
}
WORDS = st.text(alphabet="ab c.Ä", max_size=12)


@pytest.mark.parametrize("name", SACREBLEU)
def test_scores_and_signatures_are_those_of_sacrebleu(name, reference, damaged):
    hypotheses = damaged(0.2, 1)
    theirs = SACREBLEU[name]()
    expected = theirs.corpus_score(hypotheses, [reference])
    score = corpus_score(name, hypotheses, reference)
    assert score.value == pytest.approx(expected.score, abs=1e-9)
    assert (score.name, score.signature) == (expected.name, str(theirs.get_signature()))


@pytest.mark.parametrize("name", SACREBLEU)
def test_two_references_score_as_in_sacrebleu(name, reference, damaged):
    references = [reference, damaged(0.3, 5)]
    theirs = SACREBLEU[name]()
    expected = theirs.corpus_score(damaged(0.2, 1), references)
    score = corpus_score(name, damaged(0.2, 1), references)
    assert score.value == pytest.approx(expected.score, abs=1e-9)
    assert score.signature == str(theirs.get_signature())
    assert score.signature.startswith("nrefs:2|")


@pytest.mark.parametrize("name", SACREBLEU)
@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5))
def test_any_short_text_scores_as_in_sacrebleu(name, pairs):
    hypotheses, answers = [list(side) for side in zip(*pairs, strict=True)]
    expected = SACREBLEU[name]().corpus_score(hypotheses, [answers]).score
    assert corpus_score(name, hypotheses, answers).value == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(hypothesis=WORDS, answer=WORDS)
def test_sentence_bleu_is_that_of_sacrebleu(hypothesis, answer):
    expected = BLEU(effective_order=True).sentence_score(hypothesis, [answer]).score
    assert sentence_scores("bleu", [hypothesis], [answer])[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("tokenize", ["13a", "intl", "zh", "char", "none"])
def test_tokenizers_reach_sacrebleu(tokenize, reference, damaged):
    theirs = BLEU(tokenize=tokenize, force=True)
    expected = theirs.corpus_score(damaged(0.2, 1), [reference]).score
    score = corpus_score("bleu", damaged(0.2, 1), reference, MetricOptions(tokenize=tokenize))
    assert score.value == pytest.approx(expected)
    assert f"tok:{tokenize}|" in score.signature


@pytest.mark.parametrize("name", ["bleu", "chrf", "chrf++", "multi-bleu"])
def test_lowercase_ignores_case(name, reference):
    shouted = [line.replace("The", "THE") for line in reference]
    assert corpus_score(name, shouted, reference).value < 100
    score = corpus_score(name, shouted, reference, MetricOptions(lowercase=True))
    assert score.value == pytest.approx(100)
    assert "case:lc" in score.signature


def test_details_are_the_numbers_of_bleu(reference, damaged):
    expected = BLEU().corpus_score(damaged(0.2, 1), [reference])
    details = corpus_score("bleu", damaged(0.2, 1), reference).details
    assert details["precisions"] == pytest.approx(expected.precisions)
    assert details["brevity_penalty"] == pytest.approx(expected.bp)
    assert details["hypothesis_length"] == expected.sys_len
    assert details["reference_length"] == expected.ref_len


@pytest.mark.parametrize("name", METRICS)
def test_a_perfect_text_has_the_perfect_score(name, reference):
    score = corpus_score(name, reference, reference)
    assert score.value == pytest.approx(100 if score.higher_is_better else 0)


@pytest.mark.parametrize("name", METRICS)
def test_statistics_of_the_parts_sum_to_the_whole(name, reference, damaged):
    metric = make_metric(name)
    counts = metric.statistics(damaged(0.2, 1), reference)
    assert counts.shape == (200, metric.width)
    assert float(metric.values(counts.sum(axis=0))) == corpus_score(metric, damaged(0.2, 1), reference).value


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(
    ("hypotheses", "answers", "message"),
    [
        (["a"], ["a", "b"], "line counts differ: hypotheses 1, reference 2"),
        (["a", "b"], ["a"], "line counts differ: hypotheses 2, reference 1"),
        (["a"], [["a"], ["a", "b"]], "line counts differ: hypotheses 1, reference 2 2"),
        ([], ["a"], "hypotheses is empty"),
        (["a"], [], "no reference"),
    ],
)
def test_wrong_line_counts_are_refused(name, hypotheses, answers, message):
    with pytest.raises(DataError, match=message):
        corpus_score(name, hypotheses, answers)


def test_unknown_names_are_refused_with_the_choices():
    with pytest.raises(UsageError, match=r"unknown metric 'blue'.*bleu, chrf"):
        make_metric("blue")
    with pytest.raises(UsageError, match=r"unknown tokenizer '13b'.*13a"):
        make_metric("bleu", MetricOptions(tokenize="13b"))


def test_a_missing_tokenizer_package_says_what_to_install(without_mecab):
    with pytest.raises(UsageError, match=r"ja-mecab cannot be used.*deepwire\[ja\]"):
        make_metric("bleu", MetricOptions(tokenize="ja-mecab"))


def test_a_tokenizer_that_cannot_be_downloaded_is_one_clear_error(monkeypatch, tmp_path):
    from sacrebleu.tokenizers import tokenizer_spm

    def no_network(*_: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(tokenizer_spm, "download_file", no_network)
    with pytest.raises(UsageError, match="could not be downloaded"):
        make_metric("bleu", MetricOptions(tokenize="flores200"))


def test_values_keep_leading_axes(reference, damaged):
    for name in METRICS:
        metric = make_metric(name)
        counts = metric.statistics(damaged(0.2, 1), reference)
        many = np.stack([counts[:50].sum(0), counts[50:].sum(0), np.zeros(metric.width)]).reshape(3, 1, -1)
        values = metric.values(many)
        assert values.shape == (3, 1)
        assert values[0, 0] == pytest.approx(float(metric.values(counts[:50].sum(0))))
        assert values[2, 0] == 0
