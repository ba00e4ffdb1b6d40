"""BLEU, chrF and TER: sacrebleu counts and signs, the sums are scored here for many resamples at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from deepwire.errors import UsageError
from deepwire.evaluation.metric import Floats, Metric
from deepwire.evaluation.ngram_precision import WIDTH, Smoothing, bleu, bleu_details

TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "char", "none")


class BleuMetric(Metric):
    """Corpus BLEU as sacrebleu counts it (Post 2018).

    Args:
        tokenize: One of ``TOKENIZERS``; ``flores101`` and ``flores200`` fetch their model at the first use.
        lowercase: Ignore case.
        smoothing: What a precision of 0 counts: ``exp`` (sacrebleu's default) or ``none``.

    Raises:
        UsageError: The tokenizer is unknown, or needs a package or a file that is not there.
    """

    name = "BLEU"
    width = WIDTH

    def __init__(
        self, tokenize: str = "13a", *, lowercase: bool = False, smoothing: Smoothing = "exp"
    ) -> None:
        self.tokenize = tokenize
        self.smoothing: Smoothing = smoothing
        if tokenize not in TOKENIZERS:
            raise UsageError(f"unknown tokenizer {tokenize!r}", f"choose one of {', '.join(TOKENIZERS)}")
        try:
            self._bleu = BLEU(lowercase=lowercase, tokenize=tokenize, smooth_method=smoothing, force=True)
        except (ImportError, RuntimeError, AssertionError) as error:  # a wrong MeCab dictionary is asserted
            raise UsageError(
                f"tokenizer {tokenize} cannot be used here", _tokenizer_hint(tokenize)
            ) from error
        except (OSError, SystemExit) as error:  # sacrebleu leaves the program when its download fails
            raise UsageError(
                f"tokenizer {tokenize}: its SentencePiece model could not be downloaded",
                "connect to the network once, or choose another tokenizer",
            ) from error

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        return np.asarray(self._bleu._extract_corpus_statistics(hypotheses, references), np.float64)

    def values(self, totals: Floats) -> Floats:
        """Turn summed counts ``[..., 10]`` into BLEU in percent ``[...]``."""
        return bleu(totals, smoothing=self.smoothing)

    def sentence_values(self, statistics: Floats) -> Floats:
        """Turn counts ``[N, 10]`` into sentence BLEU ``[N]``, up to the longest n-grams a sentence has."""
        return bleu(statistics, smoothing=self.smoothing, effective_order=True)

    def signature(self, references: int) -> str:
        """Return sacrebleu's signature."""
        self._bleu.num_refs = references
        return str(self._bleu.get_signature())

    def details(self, totals: Floats) -> dict[str, float | tuple[float, ...]]:
        """Return precisions, brevity penalty, length ratio and lengths."""
        return bleu_details(totals, self.smoothing)


class ChrfMetric(Metric):
    """chrF, the F-score of character n-grams (Popović 2015); with word order 2, chrF++ (Popović 2017).

    Args:
        word_order: The longest word n-gram that counts besides the characters; 0 for chrF, 2 for chrF++.
        lowercase: Ignore case.
    """

    def __init__(self, *, word_order: Literal[0, 2] = 0, lowercase: bool = False) -> None:
        self._chrf = CHRF(word_order=word_order, lowercase=lowercase)
        self.name = f"chrF{self._chrf.beta}" + "+" * word_order
        self.width = 3 * self._chrf.order

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        return np.asarray(self._chrf._extract_corpus_statistics(hypotheses, references), np.float64)

    def values(self, totals: Floats) -> Floats:
        """Turn summed counts ``[..., K]`` into chrF ``[...]``; three counts for each order."""
        text, reference, common = totals[..., 0::3], totals[..., 1::3], totals[..., 2::3]
        counted = (text > 0) & (reference > 0)
        orders = np.maximum(counted.sum(axis=-1), 1)
        precision = np.where(counted, common / np.maximum(text, 1.0), 0.0).sum(axis=-1) / orders
        recall = np.where(counted, common / np.maximum(reference, 1.0), 0.0).sum(axis=-1) / orders
        factor = float(self._chrf.beta) ** 2
        divisor = factor * precision + recall
        value: Floats = 100.0 * (1.0 + factor) * precision * recall / np.where(divisor > 0, divisor, 1.0)
        return value

    def sentence_values(self, statistics: Floats) -> Floats:
        """Turn counts ``[N, K]`` into sentence chrF ``[N]``."""
        return self.values(statistics)

    def signature(self, references: int) -> str:
        """Return sacrebleu's signature."""
        self._chrf.num_refs = references
        return str(self._chrf.get_signature())


class TerMetric(Metric):
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
        self._ter = TER(normalized=characters, asian_support=characters)

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        return np.asarray(self._ter._extract_corpus_statistics(hypotheses, references), np.float64)

    def values(self, totals: Floats) -> Floats:
        """Turn summed edits and mean reference lengths ``[..., 2]`` into TER ``[...]``."""
        edits, length = totals[..., 0], totals[..., 1]
        rate = edits / np.where(length > 0, length, 1.0)
        return 100.0 * np.where(length > 0, rate, (edits > 0).astype(np.float64))

    def sentence_values(self, statistics: Floats) -> Floats:
        """Turn edits and lengths ``[N, 2]`` into sentence TER ``[N]``."""
        return self.values(statistics)

    def signature(self, references: int) -> str:
        """Return sacrebleu's signature."""
        self._ter.num_refs = references
        return str(self._ter.get_signature())

    def details(self, totals: Floats) -> dict[str, float | tuple[float, ...]]:
        """Return the number of edits and the reference length."""
        return {"edits": float(totals[0]), "reference_length": float(totals[1])}


def _tokenizer_hint(tokenize: str) -> str:
    extra = {"ja-mecab": "pip install 'deepwire[ja]'", "ko-mecab": "pip install 'deepwire[ko]'"}
    return extra.get(tokenize, "its downloaded model may be damaged: remove it below ~/.sacrebleu/models")
