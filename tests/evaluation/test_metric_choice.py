from __future__ import annotations

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu import utils
from sacrebleu.metrics import BLEU, CHRF, TER

from deepwire.errors import DataError, UsageError
from deepwire.evaluation.comparison import text_warnings
from deepwire.evaluation.metric_choice import (
    METRICS,
    BleuMetric,
    LanguageMetrics,
    MetricOptions,
    corpus_score,
    language_of,
    make_metric,
    parse_tokenizers,
    script_without_spaces,
    tokenizer_of,
)
from deepwire.evaluation.texts import Text

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
@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5))
def test_any_short_text_scores_as_in_sacrebleu(name, pairs):
    hypotheses, answers = [list(side) for side in zip(*pairs, strict=True)]
    expected = SACREBLEU[name]().corpus_score(hypotheses, [answers]).score
    assert corpus_score(name, hypotheses, answers).value == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(hypothesis=WORDS, answer=WORDS)
def test_sentence_bleu_is_that_of_sacrebleu(hypothesis, answer):
    metric, expected = (
        make_metric("bleu"),
        BLEU(effective_order=True).sentence_score(hypothesis, [answer]).score,
    )
    assert metric.sentence_values(metric.statistics([hypothesis], [answer]))[0] == pytest.approx(
        expected, abs=1e-9
    )


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
        (["a"], [["a"], ["a", "b"]], "line counts differ: hypotheses 1, reference 2 2"),
        (["a"], [], "no reference"),
    ],
)
def test_wrong_line_counts_are_refused(name, hypotheses, answers, message):
    with pytest.raises(DataError, match=message):
        corpus_score(name, hypotheses, answers)


def tokenizer(metrics: LanguageMetrics, language: str) -> str:
    metric = metrics.of(language)[0]
    assert isinstance(metric, BleuMetric)
    return metric.tokenize


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", "13a"), ("zh", "zh"), ("zh_CN", "zh"), ("zh-Hant", "zh"), ("yue", "zh"), ("zho", "zh"),
        ("ja", "ja-mecab"), ("jpn_Jpan", "ja-mecab"), ("ko_KR", "ko-mecab"), ("zu", "13a"), ("jam", "13a"),
        ("th", "char"), ("khm_Khmr", "char"), ("bo", "char"), ("", "13a"),
    ],
)  # fmt: skip
def test_each_language_has_its_tokenizer(language, expected):
    assert tokenizer_of(language) == expected


def test_without_mecab_japanese_counts_characters_and_says_so(without_mecab):
    metrics = LanguageMetrics()
    assert tokenizer(metrics, "ja") == "char"
    assert tokenizer(metrics, "ja") == "char"
    assert len(metrics.notes) == 1
    assert "ja: tokenizer ja-mecab cannot be used here" in metrics.notes[0]
    assert "pip install 'deepwire[ja]'" in metrics.notes[0]
    with pytest.raises(UsageError, match="tokenizer ja-mecab cannot be used here"):
        LanguageMetrics(tokenize={"ja": "ja-mecab"}).of("ja")


def test_the_user_decides_for_all_or_for_one():
    assert tokenizer(LanguageMetrics(tokenize=parse_tokenizers("13a")), "zh") == "13a"
    some = LanguageMetrics(tokenize=parse_tokenizers("zh=char,ja=char"))
    assert [tokenizer(some, language) for language in ("zh", "ja", "de")] == ["char", "char", "13a"]
    with pytest.raises(UsageError, match="unknown tokenizer 'moses'"):
        parse_tokenizers("de=moses")


JAPANESE = ["猫が庭で寝ている。", "犬は公園を走った。", "私は毎朝コーヒーを飲みます。"]


def scores(language: str, *names: str) -> list[float]:
    """Of Japanese that differs from its reference in the final full stop."""
    hypotheses = [line.removesuffix("。") for line in JAPANESE]
    return [metric.score(hypotheses, JAPANESE).value for metric in LanguageMetrics(names).of(language)]


def test_a_full_stop_more_does_not_take_all_of_a_japanese_score():
    assert scores("", "bleu", "ter") == [0.0, 100.0]
    bleu, ter = scores("ja", "bleu", "ter")
    assert bleu > 80
    assert 0 < ter < 20
    assert scores("zh", "ter") == [ter]


def test_japanese_is_cut_into_words_by_mecab():
    pytest.importorskip("MeCab")
    (metric,) = LanguageMetrics(["bleu"]).of("ja")
    score = metric.score(JAPANESE, JAPANESE)
    assert "tok:ja-mecab" in score.signature
    assert score.details["reference_length"] == 23


@pytest.mark.parametrize(
    ("name", "lines", "language"),
    [
        ("dev.ja", JAPANESE, "ja"),
        ("dev.ja.txt", JAPANESE, "ja"),
        ("hyp.de", ["was ich daraus gemacht habe"], ""),
        ("dev (ja)", JAPANESE, ""),
    ],
)
def test_the_name_of_a_reference_may_say_its_language(name, lines, language):
    assert language_of(Text(name, lines)) == language


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("猫が庭で寝ている。", "kana"),
        ("แมวกำลังนอนหลับอยู่ในสวน", "Thai"),
        ("나는 어제 공원에서 고양이를 보았다.", ""),
        ("In Tokyo (東京) a cat sleeps in the garden.", ""),
    ],
)
def test_text_without_spaces_is_known_by_its_script(line, script):
    assert script_without_spaces([line] * 3) == script


@pytest.mark.parametrize(
    ("names", "tokenize", "said"),
    [
        (["bleu", "chrf"], {}, "BLEU|tok:13a says little"),
        (["multi-bleu"], {}, "multi-bleu says little"),
        (["bleu"], {"": "none"}, ""),
    ],
)
def test_metrics_that_look_for_spaces_are_warned_about_once(names, tokenize, said):
    texts = [Text("hyp", JAPANESE), Text("ref", JAPANESE)]
    found = text_warnings(texts, LanguageMetrics(names, tokenize).of(""))
    assert len(found) == bool(said)
    assert all(
        said in warning and warning.startswith("hyp is written without spaces (kana)") for warning in found
    )


def test_spbleu_counts_subwords_of_the_model(monkeypatch, tmp_path):
    (tmp_path / "models").mkdir()
    text = ["ein kleiner hund schläft auf dem dach", "zwei katzen sitzen im garten"] * 5
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_prefix=str(tmp_path / "models" / "piece"),
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (tmp_path / "models" / "piece.model").rename(tmp_path / "models" / "flores200sacrebleuspm")
    monkeypatch.setattr(utils, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))
    (metric,) = LanguageMetrics(["spbleu"]).of("de")
    score = metric.score(["ein hund schläft auf dem dach"], ["ein kleiner hund schläft auf dem dach"])
    assert score.name == "spBLEU"
    assert "tok:flores200" in score.signature
    assert 0 < score.value < 100
