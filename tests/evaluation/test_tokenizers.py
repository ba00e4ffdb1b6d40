from __future__ import annotations

import pytest
import sentencepiece
from sacrebleu import utils

from deepwire.errors import UsageError
from deepwire.evaluation.comparison import text_warnings
from deepwire.evaluation.sacrebleu_metrics import BleuMetric
from deepwire.evaluation.texts import Text
from deepwire.evaluation.tokenizers import (
    LanguageMetrics,
    language_of,
    parse_tokenizers,
    script_without_spaces,
    tokenizer_of,
)


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


def test_languages_without_spaces_get_a_note():
    metrics = LanguageMetrics(["bleu", "ter"])
    assert tokenizer(metrics, "th") == "char"
    assert metrics.notes == [
        "th is written without spaces and sacrebleu has no tokenizer for it, so BLEU counts characters "
        "(tok:char)",
        "th is written without spaces, where TER says little: see chrF",
    ]


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
        ("a.b/dev.ja.0.gz", JAPANESE, "ja"),
        ("dev.ja.txt", JAPANESE, "ja"),
        ("hyp.my", ["what I have made of it"], ""),  # not Burmese
        ("hyp.de", ["was ich daraus gemacht habe"], ""),
        ("ref", JAPANESE, ""),
        ("dev (ja)", JAPANESE, ""),
    ],
)
def test_the_name_of_a_reference_may_say_its_language(name, lines, language):
    assert language_of(Text(name, lines)) == language


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("猫が庭で寝ている。", "kana"),
        ("我昨天在公园里看见了一只猫。", "Chinese characters"),
        ("แมวกำลังนอนหลับอยู่ในสวน", "Thai"),
        ("猫 が 庭 で 寝 て いる 。", ""),  # somebody has cut it into words
        ("나는 어제 공원에서 고양이를 보았다.", ""),
        ("A cat sleeps in the garden.", ""),
        ("In Tokyo (東京) a cat sleeps in the garden.", ""),
        ("", ""),
    ],
)
def test_text_without_spaces_is_known_by_its_script(line, script):
    assert script_without_spaces([line] * 3) == script


@pytest.mark.parametrize(
    ("names", "tokenize", "said"),
    [
        (["bleu", "chrf"], {}, "BLEU|tok:13a says little"),
        (["ter"], {}, "TER says little"),
        (["multi-bleu"], {}, "multi-bleu says little"),
        (["bleu"], {"": "char"}, ""),
        (["bleu"], {"": "none"}, ""),
        (["chrf"], {}, ""),
    ],
)
def test_metrics_that_look_for_spaces_are_warned_about_once(names, tokenize, said):
    texts = [Text("hyp", JAPANESE), Text("ref", JAPANESE)]
    found = text_warnings(texts, LanguageMetrics(names, tokenize).of(""))
    assert len(found) == bool(said)
    assert all(
        said in warning and warning.startswith("hyp is written without spaces (kana)") for warning in found
    )


def test_text_cut_into_words_is_seen_with_the_tokenizers_of_other_languages():
    cut, raw = Text("cut", ["猫 が 庭 で 寝 て いる 。"] * 3), Text("raw", ["猫が庭で寝ている。"] * 3)
    for tokenizer in ("char", "zh", "ja-mecab"):
        metrics = LanguageMetrics(["bleu"], {"": tokenizer}).of("")
        (found,) = text_warnings([cut, raw], metrics)
        assert found.startswith("cut looks tokenised (100% of lines end in a free-standing full stop)")
        assert f"tokenizer {tokenizer} expects raw text" in found
    (found,) = text_warnings([cut, raw], LanguageMetrics(["multi-bleu"]).of(""))
    assert found.endswith("multi-bleu says little: cut it into words, or use the metric bleu")


def test_spbleu_needs_its_model_and_fetches_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(utils, "SACREBLEU_DIR", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        LanguageMetrics(["spbleu"]).of("de")
    assert str(tmp_path / "models" / "flores200sacrebleuspm") in caught.value.message
    assert "curl" in caught.value.hint


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


def test_unknown_metrics_are_refused():
    with pytest.raises(UsageError, match="unknown metric 'meteor'"):
        LanguageMetrics(["meteor"]).of("de")
