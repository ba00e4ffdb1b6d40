"""The metrics by name, and which tokenizer BLEU needs in which language: one rule for all commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import cast

from deepwire import plugins
from deepwire.data.text.language_guess import script_shares
from deepwire.errors import UsageError
from deepwire.evaluation.metric import Metric, References, Score
from deepwire.evaluation.standard_metrics import (
    TOKENIZERS,
    BleuMetric,
    ChrfMetric,
    MultiBleuMetric,
    TerMetric,
)
from deepwire.evaluation.texts import Text
from deepwire.io.output import COMPRESSED_SUFFIXES


@dataclass(frozen=True)
class MetricOptions:
    """Settings of the metrics; each metric takes those that concern it.

    Attributes:
        tokenize: The tokenizer of BLEU, one of `deepwire.evaluation.standard_metrics.TOKENIZERS`.
        lowercase: Ignore case in BLEU, chrF and multi-bleu (TER always does).
        split_hyphens: Split hyphenated words in multi-bleu.
        characters: Chinese and Japanese characters are words in TER.
    """

    tokenize: str = "13a"
    lowercase: bool = False
    split_hyphens: bool = False
    characters: bool = False


METRICS: dict[str, Callable[[MetricOptions], Metric]] = {
    "bleu": lambda options: BleuMetric(options.tokenize, lowercase=options.lowercase),
    "chrf": lambda options: ChrfMetric(lowercase=options.lowercase),
    "chrf++": lambda options: ChrfMetric(word_order=2, lowercase=options.lowercase),
    "ter": lambda options: TerMetric(characters=options.characters),
    "multi-bleu": lambda options: MultiBleuMetric(
        lowercase=options.lowercase, split_hyphens=options.split_hyphens
    ),
}
SPBLEU = {"spbleu": "flores200", "spbleu-101": "flores101"}
"""Names of BLEU over the subwords of the FLORES benchmark, and their tokenizers."""


def metric_name(written: str) -> str:
    """The name of a metric that a user wrote: in any case, but a place in a package has its own."""
    return written if "." in written else written.lower()


def make_metric(name: str, options: MetricOptions | None = None) -> Metric:
    """Makes a metric of deepwire or of another package from its name.

    Raises:
        UsageError: The name or the tokenizer is unknown, or the tokenizer cannot be used here.
    """
    options = options or MetricOptions()
    if name in SPBLEU:
        metric = BleuMetric(SPBLEU[name], lowercase=options.lowercase)
        metric.name = name.replace("bleu", "BLEU")
        return metric
    return METRICS[name](options) if name in METRICS else _made_by_plugin(name, options)


def _made_by_plugin(name: str, options: MetricOptions) -> Metric:
    try:
        make = cast("Callable[[MetricOptions], object] | None", plugins.find("metric", name, trusted=True))
        if make is not None:
            signature(make).bind(options)
    except plugins.PluginError as error:
        raise UsageError(f"metric {name!r}: {error}") from None
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"plugin metric {name}: cannot be called with MetricOptions: {error}",
            "give a function that makes the metric of them",
        ) from None
    if make is None:
        known = [*METRICS, *SPBLEU, *plugins.names("metric")]
        raise UsageError(f"unknown metric {name!r}", f"choose one of {', '.join(known)}")
    metric = make(options)
    if not isinstance(metric, Metric):
        raise UsageError(f"plugin metric {name}: gave {type(metric).__name__}, and no Metric")
    return metric


def corpus_score(
    metric: str | Metric,
    hypotheses: Sequence[str],
    references: References,
    options: MetricOptions | None = None,
) -> Score:
    """Scores a text, detokenised but for multi-bleu, with a metric or the one of a name and options.

    Raises:
        UsageError: The metric is unknown.
        DataError: The line counts differ, or there are no lines.
    """
    chosen = make_metric(metric, options) if isinstance(metric, str) else metric
    return chosen.score(hypotheses, references)


_CHINESE, _JAPANESE, _KOREAN, _CHARACTERS = "zh", "ja-mecab", "ko-mecab", "char"
_BY_LANGUAGE = {
    **dict.fromkeys(("zh", "zho", "cmn", "yue", "wuu", "lzh", "cn"), _CHINESE),
    **dict.fromkeys(("ja", "jpn", "jp"), _JAPANESE),
    **dict.fromkeys(("ko", "kor"), _KOREAN),
    # Written without spaces, and sacrebleu knows no words of them.
    **dict.fromkeys(
        ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "shn", "bo", "bod", "dz", "dzo"), _CHARACTERS
    ),
}
_OTHER_ENDINGS = (*COMPRESSED_SUFFIXES, ".txt")
_MOST = 0.5
_SAMPLE = 1000
_LETTERS_OF_A_WORD = 4
_WITHOUT_SPACES = {
    "HAN": "Chinese characters", "KANA": "kana", "THAI": "Thai", "LAO": "Lao", "KHMER": "Khmer",
    "MYANMAR": "Burmese", "TIBETAN": "Tibetan",
}  # fmt: skip


@dataclass
class LanguageMetrics:
    """The metrics of every target language, made once for each tokenizer.

    Attributes:
        names: Metrics to compute, as `make_metric` knows them, or made already.
        tokenize: The tokenizer of a language where the usual one is not wanted; `""` is all others.
        lowercase: Ignore case.
        split_hyphens: Split hyphenated words in multi-bleu.
        notes: Why a metric counts in a way that the reader may not expect, one line each.
    """

    names: Sequence[str | Metric] = ("bleu", "chrf")
    tokenize: Mapping[str, str] = field(default_factory=dict)
    lowercase: bool = False
    split_hyphens: bool = False
    notes: list[str] = field(default_factory=list)
    _made: dict[tuple[str, MetricOptions], Metric] = field(default_factory=dict)

    def of(self, language: str) -> list[Metric]:
        """The metrics for text in a language; `""` is one that nobody named.

        BLEU has the tokenizer of `tokenizer_of`, and counts characters where MeCab is not installed. TER
        takes Chinese and Japanese characters for words.

        Raises:
            UsageError: A metric or tokenizer is unknown, or something it needs is not installed.
        """
        return [name if isinstance(name, Metric) else self._metric(name, language) for name in self.names]

    def _metric(self, name: str, language: str) -> Metric:
        usual = tokenizer_of(language)
        if name == "bleu":
            return self._bleu(language, usual)
        if name == "ter" and usual == _CHARACTERS:
            self._note(f"{language} is written without spaces, where TER says little: see chrF")
        return self._once(name, characters=name == "ter" and usual in (_CHINESE, _JAPANESE))

    def _bleu(self, language: str, usual: str) -> Metric:
        wanted = self.tokenize.get(language, self.tokenize.get(""))
        if wanted is not None:
            return self._once("bleu", wanted)
        if usual == _CHARACTERS:
            self._note(
                f"{language} is written without spaces and sacrebleu has no tokenizer for it, so BLEU counts "
                "characters (tok:char)"
            )
        try:
            return self._once("bleu", usual)
        except UsageError as error:
            if usual not in (_JAPANESE, _KOREAN):
                raise
            self._note(f"{language}: {error.message}, so BLEU counts characters (tok:char); {error.hint}")
            return self._once("bleu", _CHARACTERS)

    def _once(self, name: str, tokenize: str = "13a", *, characters: bool = False) -> Metric:
        options = MetricOptions(tokenize, self.lowercase, self.split_hyphens, characters)
        if (name, options) not in self._made:
            self._made[name, options] = make_metric(name, options)
        return self._made[name, options]

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def tokenizer_of(language: str) -> str:
    """The tokenizer of BLEU for text in a language: sacrebleu's own, characters, otherwise 13a."""
    return _BY_LANGUAGE.get(re.split("[-_]", language.lower())[0], "13a")


def language_of(reference: Text) -> str:
    """The language that the file name of a text says: `ja` of `dev.ja`, `dev.ja.0.gz`, `dev.ja.txt`.

    Only one with another tokenizer than 13a, where the text is in such a script; otherwise `""`.
    """
    for suffix in reversed(Path(reference.name).suffixes):
        ending = suffix.removeprefix(".")
        if suffix in _OTHER_ENDINGS or ending.isdecimal():
            continue
        fits = _share(reference.lines[:_SAMPLE], (*_WITHOUT_SPACES, "HANGUL")) > _MOST
        return ending if fits and tokenizer_of(ending) != "13a" else ""
    return ""


def script_without_spaces(lines: Sequence[str]) -> str:
    """The name of the script of a text in which nothing stands between words; `""` if it is no such text."""
    sample = lines[:_SAMPLE]
    letters = sum(character.isalpha() for line in sample for character in line)
    if letters <= _LETTERS_OF_A_WORD * sum(len(line.split()) for line in sample):
        return ""
    if _share(sample, _WITHOUT_SPACES) <= _MOST:
        return ""
    return next(name for script in script_shares(sample) if (name := _WITHOUT_SPACES.get(script)))


def _share(lines: Sequence[str], scripts: Collection[str]) -> float:
    """The share of the letters of a text that is in some scripts."""
    return sum(share for script, share in script_shares(lines).items() if script in scripts)


def parse_tokenizers(text: str) -> dict[str, str]:
    """Reads `13a` (for every language) or `zh=char,ja=char` (for these); a UsageError for unknown ones."""
    chosen: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        language, _, tokenizer = part.rpartition("=")
        if tokenizer not in TOKENIZERS:
            raise UsageError(f"unknown tokenizer {tokenizer!r}", f"choose one of {', '.join(TOKENIZERS)}")
        chosen[language.strip()] = tokenizer
    return chosen
