"""Which tokenizer BLEU needs in which language, and the metrics of a language."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sacrebleu import utils
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

from deepwire.errors import UsageError
from deepwire.evaluation.base import Metric
from deepwire.evaluation.metrics import METRICS, MetricOptions, make_metric
from deepwire.evaluation.sacrebleu_metrics import TOKENIZERS, BleuMetric

SPBLEU = {"spbleu": "flores200", "spbleu-101": "flores101"}
"""Names of BLEU over the subwords of the FLORES benchmark, and their tokenizers."""

_BY_LANGUAGE = {
    "zh": "zh", "zho": "zh", "cmn": "zh", "yue": "zh",
    "ja": "ja-mecab", "jpn": "ja-mecab",
    "ko": "ko-mecab", "kor": "ko-mecab",
}  # fmt: skip
_WITHOUT_SPACES = ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod")
_IN_PLACE_OF_MECAB = "char"


@dataclass
class LanguageMetrics:
    """The metrics of every target language, made once for each tokenizer.

    Attributes:
        names: Metrics to compute: names of ``METRICS``, or of ``SPBLEU``.
        tokenize: The tokenizer of a language where the usual one is not wanted; ``""`` is all others.
        lowercase: Ignore case.
        notes: Why a tokenizer was chosen that the reader may not expect, one line each.
    """

    names: Sequence[str] = ("bleu", "chrf")
    tokenize: Mapping[str, str] = field(default_factory=dict)
    lowercase: bool = False
    notes: list[str] = field(default_factory=list)
    _made: dict[tuple[str, str], Metric] = field(default_factory=dict)

    def of(self, language: str) -> list[Metric]:
        """The metrics for text in a language.

        Raises:
            UsageError: A metric or tokenizer is unknown, or something it needs is not installed.
        """
        return [self._metric(name, language) for name in self.names]

    def _metric(self, name: str, language: str) -> Metric:
        if name in SPBLEU:
            return self._once(name, SPBLEU[name])
        if name != "bleu":
            return self._once(name, "13a")
        given = self.tokenize.get(language, self.tokenize.get(""))
        if given is not None:
            return self._once(name, given)
        usual = tokenizer_of(language)
        if base_language(language) in _WITHOUT_SPACES:
            self._note(f"{language} is written without spaces, where BLEU|tok:13a says little: see chrF")
        if "mecab" not in usual:
            return self._once(name, usual)
        try:
            return self._once(name, usual)
        except UsageError as error:
            self._note(f"{language}: {error.message}, so BLEU counts characters (tok:char); {error.hint}")
            return self._once(name, _IN_PLACE_OF_MECAB)

    def _once(self, name: str, tokenize: str) -> Metric:
        key = (name, tokenize)
        if key not in self._made:
            self._made[key] = _make(name, tokenize, self.lowercase)
        return self._made[key]

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def tokenizer_of(language: str) -> str:
    """sacrebleu's tokenizer for text in a language: zh, ja-mecab, ko-mecab, otherwise 13a."""
    return _BY_LANGUAGE.get(base_language(language), "13a")


def base_language(language: str) -> str:
    """``zh`` of ``zh-Hans`` or ``zh_CN``."""
    return re.split("[-_]", language.lower())[0]


def parse_tokenizers(text: str) -> dict[str, str]:
    """Read ``13a`` (for every language) or ``zh=char,ja=char`` (for these).

    Raises:
        UsageError: A tokenizer is unknown.
    """
    chosen: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        language, _, tokenizer = part.rpartition("=")
        if tokenizer not in TOKENIZERS:
            raise UsageError(f"unknown tokenizer {tokenizer!r}", f"choose one of {', '.join(TOKENIZERS)}")
        chosen[language.strip()] = tokenizer
    return chosen


def _make(name: str, tokenize: str, lowercase: bool) -> Metric:
    if name in SPBLEU:
        return _spbleu(name, lowercase)
    if name not in METRICS:
        raise UsageError(f"unknown metric {name!r}", f"choose one of {', '.join([*METRICS, *SPBLEU])}")
    return make_metric(name, MetricOptions(tokenize, lowercase=lowercase))


def _spbleu(name: str, lowercase: bool) -> Metric:
    """BLEU over FLORES subwords; its model must be there, nothing is fetched behind the user's back."""
    tokenizer = SPBLEU[name]
    url = SPM_MODELS[tokenizer]["url"]
    path = Path(utils.SACREBLEU_DIR) / "models" / Path(url).name
    if not path.exists():
        raise UsageError(
            f"{name}: {path} is missing, the SentencePiece model of {tokenizer}",
            f"fetch it once: mkdir -p {path.parent}; curl -L -o {path} {url}",
        )
    metric = BleuMetric(tokenizer, lowercase=lowercase)
    metric.name = name.replace("bleu", "BLEU")
    return metric
