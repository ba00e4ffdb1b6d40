"""The metrics: BLEU, chrF and TER as sacrebleu counts and signs them, tokenised BLEU as multi-bleu.perl does.

Which tokenizer BLEU needs in which language is one rule for all commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal, cast

import numpy as np
from sacrebleu import utils
from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

from deepwire import plugins
from deepwire.data.text.language_guess import language_code, script_shares
from deepwire.errors import UsageError
from deepwire.evaluation.metric import Details, Floats, Metric, References, Score
from deepwire.evaluation.texts import Text
from deepwire.io.output import COMPRESSED_SUFFIXES

_ORDERS = 4
TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "char", "none")


class _OfSacrebleu(Metric):
    """Counts and signs with a metric of sacrebleu; the scores of many sums at once are computed here."""

    def __init__(self, metric: SacrebleuMetric) -> None:
        self._metric = metric

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        return np.asarray(self._metric._extract_corpus_statistics(hypotheses, references), np.float64)

    def signature(self, references: int) -> str:
        self._metric.num_refs = references
        return str(self._metric.get_signature())


class BleuMetric(_OfSacrebleu):
    """Corpus BLEU as sacrebleu counts it (Post 2018).

    Args:
        tokenize: One of `TOKENIZERS`; the models of `flores101` and `flores200` must have been fetched.
        lowercase: Ignore case.
        smoothing: A precision without a match counts 1 / 2^k matches, the k-th of them (`exp`, as mteval-v13a
            does), or 0 (`none`).

    Raises:
        UsageError: The tokenizer is unknown, or needs a package or a file that is not there.
    """

    name = "BLEU"
    width = 2 + 2 * _ORDERS

    def __init__(
        self, tokenize: str = "13a", *, lowercase: bool = False, smoothing: Literal["exp", "none"] = "exp"
    ) -> None:
        self.tokenize, self.lowercase, self._smoothed = tokenize, lowercase, smoothing == "exp"
        if tokenize not in TOKENIZERS:
            raise UsageError(f"unknown tokenizer {tokenize!r}", f"choose one of {', '.join(TOKENIZERS)}")
        _require_tokenizer_model(tokenize)
        try:
            super().__init__(
                BLEU(lowercase=lowercase, tokenize=tokenize, smooth_method=smoothing, force=True)
            )
        # MeCab asserts that its dictionary is the right one.
        except (ImportError, OSError, RuntimeError, AssertionError) as error:
            hint = "its downloaded model may be damaged: remove it below ~/.sacrebleu/models"
            if tokenize in ("ja-mecab", "ko-mecab"):
                hint = f"pip install 'deepwire[{tokenize[:2]}]'"
            raise UsageError(f"tokenizer {tokenize} cannot be used here", hint) from error

    def values(self, totals: Floats) -> Floats:
        """BLEU in percent `[...]` of summed lengths, matches and n-grams `[..., 10]`."""
        return self._bleu(totals, effective_order=False)

    def sentence_values(self, statistics: Floats) -> Floats:
        """Sentence BLEU `[N]`, up to the longest n-grams that a sentence has."""
        return self._bleu(statistics, effective_order=self._smoothed)

    def _bleu(self, totals: Floats, *, effective_order: bool) -> Floats:
        matches, counts = totals[..., 2 : 2 + _ORDERS], totals[..., 2 + _ORDERS :]
        some, seen = matches.any(axis=-1), counts > 0
        if self._smoothed:
            missed = seen & (matches == 0)
            matches = np.where(missed, 0.5 ** np.cumsum(missed, axis=-1), matches)
        with np.errstate(divide="ignore"):
            logs = np.log(matches / np.where(seen, counts, 1.0))
        if effective_order:
            mean = np.where(seen, logs, 0.0).sum(axis=-1) / np.maximum(seen.sum(axis=-1), 1)
        else:
            mean = np.where(seen, logs, -np.inf).mean(axis=-1)
        value: Floats = 100.0 * _brevity_penalty(totals) * np.exp(mean)
        # Without any match there is nothing to smooth: sacrebleu and the scripts before it give 0.
        return np.where(some, value, 0.0)

    def details(self, totals: Floats) -> Details:
        """Precisions (percent), brevity penalty, length ratio and lengths."""
        length, reference, *counts = totals.astype(int).tolist()
        smoothing = "exp" if self._smoothed else "none"
        score = BLEU.compute_bleu(counts[:_ORDERS], counts[_ORDERS:], length, reference, smoothing)
        return {
            "precisions": tuple(score.precisions),
            "brevity_penalty": score.bp,
            "ratio": score.ratio,
            "hypothesis_length": length,
            "reference_length": reference,
        }


def _brevity_penalty(totals: Floats) -> Floats:
    """exp(1 - r / c) where the text (length c) is shorter than the reference (length r), else 1."""
    length, reference = totals[..., 0], totals[..., 1]
    with np.errstate(divide="ignore", over="ignore"):
        penalty = np.exp(1.0 - reference / np.where(length > 0, length, 1.0))
    return np.where(length >= reference, 1.0, np.where(length > 0, penalty, 0.0))


_HYPHEN = re.compile(rb"(\S)-(\S)")
_OTHER_SPACES = [chr(code) for code in range(0x80, 0x3001) if chr(code).isspace()] + list("\x1c\x1d\x1e\x1f")
_PARTS_OF_WORDS = {ord(space): 0x10FE00 + place for place, space in enumerate(_OTHER_SPACES)}


class MultiBleuMetric(BleuMetric):
    """BLEU of text that is tokenised already, the number that the papers before sacrebleu report.

    Nothing is smoothed. Text is handled as the script handles its bytes: only ASCII white space parts words,
    and only ASCII letters are lower-cased.

    Args:
        lowercase: Ignore the case of ASCII letters (the script's `-lc`).
        split_hyphens: Rewrite `a-b` to `a ##AT##-##AT## b` on both sides first, the compound splitting of the
            English-German results of tensor2tensor and of later papers. It usually raises the score.
    """

    name = "multi-bleu"

    def __init__(self, *, lowercase: bool = False, split_hyphens: bool = False) -> None:
        super().__init__("none", smoothing="none")
        self.lowercase, self.split_hyphens = lowercase, split_hyphens

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        texts = [[self._prepared(line) for line in text] for text in (hypotheses, *references)]
        return super()._count(texts[0], texts[1:])

    def _prepared(self, line: str) -> str:
        text = line.encode("utf-8", "surrogatepass")
        if self.split_hyphens:
            text = _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", text)
        text = text.lower() if self.lowercase else text
        return text.decode("utf-8", "surrogatepass").translate(_PARTS_OF_WORDS)

    def signature(self, references: int) -> str:
        """The settings, in the form of sacrebleu's signatures."""
        case = "lc" if self.lowercase else "mixed"
        hyphens = "split" if self.split_hyphens else "kept"
        made_by = f"deepwire-{version('deepwire')}"
        count = "var" if references < 0 else references
        return f"nrefs:{count}|case:{case}|tok:none|smooth:none|hyphens:{hyphens}|version:{made_by}"


class ChrfMetric(_OfSacrebleu):
    """chrF, the F-score of character n-grams (Popović 2015); with word order 2, chrF++ (Popović 2017)."""

    def __init__(self, *, word_order: Literal[0, 2] = 0, lowercase: bool = False) -> None:
        chrf = CHRF(word_order=word_order, lowercase=lowercase)
        super().__init__(chrf)
        self.name, self.width = f"chrF{chrf.beta}" + "+" * word_order, 3 * chrf.order
        self._factor = float(chrf.beta) ** 2

    def values(self, totals: Floats) -> Floats:
        """Scores `[...]` of summed counts `[..., K]`, three for each order."""
        text, reference, common = totals[..., 0::3], totals[..., 1::3], totals[..., 2::3]
        counted = (text > 0) & (reference > 0)
        orders = np.maximum(counted.sum(axis=-1), 1)
        precision = np.where(counted, common / np.maximum(text, 1.0), 0.0).sum(axis=-1) / orders
        recall = np.where(counted, common / np.maximum(reference, 1.0), 0.0).sum(axis=-1) / orders
        divisor = self._factor * precision + recall
        share = precision * recall / np.where(divisor > 0, divisor, 1.0)
        return cast("Floats", 100.0 * (1.0 + self._factor) * share)


class TerMetric(_OfSacrebleu):
    """Translation edit rate (Snover et al. 2006): edits and shifts per reference word, in percent.

    Case does not count and there is no tokenisation, which are sacrebleu's (and Tercom's) defaults.

    Args:
        characters: Take Chinese and Japanese characters, and punctuation, for words (`norm:yes|asian:yes`).
    """

    name = "TER"
    width = 2
    higher_is_better = False

    def __init__(self, *, characters: bool = False) -> None:
        self.characters = characters
        super().__init__(TER(normalized=characters, asian_support=characters))

    def values(self, totals: Floats) -> Floats:
        """TER `[...]` of summed edits and mean reference lengths `[..., 2]`."""
        edits, length = totals[..., 0], totals[..., 1]
        rate = edits / np.where(length > 0, length, 1.0)
        return 100.0 * np.where(length > 0, rate, (edits > 0).astype(np.float64))

    def details(self, totals: Floats) -> Details:
        """The number of edits and the reference length."""
        return {"edits": float(totals[0]), "reference_length": float(totals[1])}


def _require_tokenizer_model(tokenize: str) -> None:
    """Sacrebleu would fetch a missing model behind the user's back."""
    model = SPM_MODELS.get(tokenize)
    if model is None:
        return
    path = Path(utils.SACREBLEU_DIR, "models", Path(model["url"]).name)
    if not path.exists():
        raise UsageError(
            f"tokenizer {tokenize}: {path} is missing, its SentencePiece model",
            f"fetch it once: mkdir -p {path.parent}; curl -L -o {path} {model['url']}",
        )


@dataclass(frozen=True)
class MetricOptions:
    """Settings of the metrics; each metric takes those that concern it.

    Attributes:
        tokenize: The tokenizer of BLEU, one of `TOKENIZERS`.
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
    except plugins.PluginError as error:
        raise UsageError(f"metric {name!r}: {error}") from None
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
    **dict.fromkeys(("zh", "yue", "wuu", "lzh", "cn"), _CHINESE),
    **dict.fromkeys(("ja", "jp"), _JAPANESE),
    "ko": _KOREAN,
    # Written without spaces, and sacrebleu knows no words of them.
    **dict.fromkeys(("th", "lo", "km", "my", "shn", "bo", "bod", "dz", "dzo"), _CHARACTERS),
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
    return _BY_LANGUAGE.get(language_code(language), "13a")


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
