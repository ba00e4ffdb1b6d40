"""BLEU, chrF and TER as sacrebleu counts and signs them, and tokenised BLEU as Moses' multi-bleu.perl."""

from __future__ import annotations

import re
from collections.abc import Sequence
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

from deepwire.errors import UsageError
from deepwire.evaluation.metric import Details, Floats, Metric

_ORDERS = 4
TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "char", "none")


class _OfSacrebleu(Metric):
    """Counts and signs with a metric of sacrebleu; the scores of many sums at once are computed here."""

    def __init__(self, metric: SacrebleuMetric) -> None:
        self._metric = metric

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        return np.asarray(self._metric._extract_corpus_statistics(hypotheses, references), np.float64)

    def sentence_values(self, statistics: Floats) -> Floats:
        """Scores `[N]` of the statistics of single sentences `[N, K]`."""
        return self.values(statistics)

    def signature(self, references: int) -> str:
        """Sacrebleu's signature."""
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
            raise UsageError(
                f"tokenizer {tokenize} cannot be used here", _tokenizer_hint(tokenize)
            ) from error

    def values(self, totals: Floats) -> Floats:
        """BLEU in percent `[...]` of summed lengths, matches and n-grams `[..., 10]`."""
        return self._bleu(totals, effective_order=False)

    def sentence_values(self, statistics: Floats) -> Floats:
        """Sentence BLEU `[N]`, up to the longest n-grams that a sentence has."""
        return self._bleu(statistics, effective_order=self._smoothed)

    def _bleu(self, totals: Floats, *, effective_order: bool) -> Floats:
        matches, counts = self._matches(totals)
        seen = counts > 0
        with np.errstate(divide="ignore"):
            logs = np.log(matches / np.where(seen, counts, 1.0))
        if effective_order:
            mean = np.where(seen, logs, 0.0).sum(axis=-1) / np.maximum(seen.sum(axis=-1), 1)
        else:
            mean = np.where(seen, logs, -np.inf).mean(axis=-1)
        value: Floats = 100.0 * _brevity_penalty(totals) * np.exp(mean)
        # Without any match there is nothing to smooth: sacrebleu and the scripts before it give 0.
        return np.where(totals[..., 2 : 2 + _ORDERS].any(axis=-1), value, 0.0)

    def _matches(self, totals: Floats) -> tuple[Floats, Floats]:
        """Matches, smoothed, and n-grams of each order."""
        matches, counts = totals[..., 2 : 2 + _ORDERS], totals[..., 2 + _ORDERS :]
        if self._smoothed:
            missed = (counts > 0) & (matches == 0)
            matches = np.where(missed, 0.5 ** np.cumsum(missed, axis=-1), matches)
        return matches, counts

    def details(self, totals: Floats) -> Details:
        """Precisions (percent), brevity penalty, length ratio and lengths."""
        matches, counts = self._matches(totals)
        if not totals[2 : 2 + _ORDERS].any():
            matches = np.zeros(_ORDERS)
        precisions = 100.0 * matches / np.where(counts > 0, counts, 1.0)
        length, reference = int(totals[0]), int(totals[1])
        return {
            "precisions": tuple(float(precision) for precision in precisions),
            "brevity_penalty": float(_brevity_penalty(totals)),
            "ratio": length / reference if reference else 0.0,
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


def _tokenizer_hint(tokenize: str) -> str:
    extra = {"ja-mecab": "pip install 'deepwire[ja]'", "ko-mecab": "pip install 'deepwire[ko]'"}
    return extra.get(tokenize, "its downloaded model may be damaged: remove it below ~/.sacrebleu/models")
