"""BLEU, chrF and TER as sacrebleu counts and signs them, and tokenised BLEU as Moses' multi-bleu.perl."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
from sacrebleu import utils
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

from deepwire.errors import UsageError
from deepwire.evaluation.metric import Floats, Metric, Score

MAX_ORDER = 4
WIDTH = 2 + 2 * MAX_ORDER
Smoothing = Literal["exp", "none"]


def bleu(totals: Floats, *, smoothing: Smoothing, effective_order: bool = False) -> Floats:
    """Compute BLEU from summed counts.

    Args:
        totals: ``[..., 10]``: length, reference length, four counts of matches, four counts of n-grams.
        smoothing: ``none``, or ``exp``: the k-th precision without a match counts 1 / 2^k matches, as
            mteval-v13a does.
        effective_order: Leave out the orders that are longer than the text, for single sentences.

    Returns:
        BLEU in percent, ``[...]``. A text without a single matching word has 0.
    """
    matches, counts = totals[..., 2 : 2 + MAX_ORDER], totals[..., 2 + MAX_ORDER :]
    seen = counts > 0
    if smoothing == "exp":
        missed = seen & (matches == 0)
        matches = np.where(missed, 0.5 ** np.cumsum(missed, axis=-1), matches)
    with np.errstate(divide="ignore"):
        logs = np.log(matches / np.where(seen, counts, 1.0))
    if effective_order:
        mean = np.where(seen, logs, 0.0).sum(axis=-1) / np.maximum(seen.sum(axis=-1), 1)
    else:
        mean = np.where(seen, logs, -np.inf).mean(axis=-1)
    value: Floats = 100.0 * brevity_penalty(totals) * np.exp(mean)
    # Without any match there is nothing to smooth: sacrebleu and the scripts before it give 0.
    return np.where(totals[..., 2 : 2 + MAX_ORDER].any(axis=-1), value, 0.0)


def brevity_penalty(totals: Floats) -> Floats:
    """Return exp(1 - r / c) where the text (length c) is shorter than the reference (length r), else 1."""
    length, reference = totals[..., 0], totals[..., 1]
    with np.errstate(divide="ignore", over="ignore"):
        penalty = np.exp(1.0 - reference / np.where(length > 0, length, 1.0))
    return np.where(length >= reference, 1.0, np.where(length > 0, penalty, 0.0))


def bleu_details(totals: Floats, smoothing: Smoothing) -> dict[str, float | tuple[float, ...]]:
    """Return precisions (percent), brevity penalty, length ratio and lengths of summed counts ``[10]``."""
    matches, counts = totals[2 : 2 + MAX_ORDER], totals[2 + MAX_ORDER :]
    if smoothing == "exp" and matches.any():
        missed = (counts > 0) & (matches == 0)
        matches = np.where(missed, 0.5 ** np.cumsum(missed), matches)
    precisions = 100.0 * matches / np.where(counts > 0, counts, 1.0)
    length, reference = int(totals[0]), int(totals[1])
    return {
        "precisions": tuple(float(precision) for precision in precisions),
        "brevity_penalty": float(brevity_penalty(totals)),
        "ratio": length / reference if reference else 0.0,
        "hypothesis_length": length,
        "reference_length": reference,
    }


TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "char", "none")


class BleuMetric(Metric):
    """Corpus BLEU as sacrebleu counts it (Post 2018).

    Args:
        tokenize: One of ``TOKENIZERS``; the models of ``flores101`` and ``flores200`` must have been fetched.
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
        _require_tokenizer_model(tokenize)
        try:
            self._bleu = BLEU(lowercase=lowercase, tokenize=tokenize, smooth_method=smoothing, force=True)
        # MeCab asserts that its dictionary is the right one.
        except (ImportError, OSError, RuntimeError, AssertionError) as error:
            raise UsageError(
                f"tokenizer {tokenize} cannot be used here", _tokenizer_hint(tokenize)
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


def _require_tokenizer_model(tokenize: str) -> None:
    """The model of a tokenizer must be there: sacrebleu would fetch it behind the user's back."""
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


_HYPHEN = re.compile(rb"(\S)-(\S)")

NGram = tuple[bytes, ...]


class MultiBleuMetric(Metric):
    """BLEU of text that is tokenised already, the number that the papers before sacrebleu report.

    Tokens are what ASCII white space separates, counts are summed over the corpus, nothing is smoothed, and
    the brevity penalty takes the reference length closest to the hypothesis (of two equally close ones, the
    shorter). Text is handled as bytes, as the script does: a no-break space is part of a word, and only ASCII
    letters are lower-cased.

    Args:
        lowercase: Ignore the case of ASCII letters (the script's ``-lc``).
        split_hyphens: Rewrite ``a-b`` to ``a ##AT##-##AT## b`` on both sides first, the compound splitting of
            the English-German results of tensor2tensor and of later papers. It usually raises the score.
    """

    name = "multi-bleu"
    width = WIDTH

    def __init__(self, *, lowercase: bool = False, split_hyphens: bool = False) -> None:
        self.lowercase = lowercase
        self.split_hyphens = split_hyphens

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        counts = np.zeros((len(hypotheses), WIDTH), np.float64)
        for row, (hypothesis, *answers) in enumerate(zip(hypotheses, *references, strict=True)):
            counts[row] = _sentence_counts(self._tokens(hypothesis), [self._tokens(text) for text in answers])
        return counts

    def _tokens(self, line: str) -> list[bytes]:
        text = line.encode("utf-8", "surrogatepass")
        if self.split_hyphens:
            text = _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", text)
        return (text.lower() if self.lowercase else text).split()

    def values(self, totals: Floats) -> Floats:
        """Turn summed counts ``[..., 10]`` into BLEU in percent ``[...]``."""
        return bleu(totals, smoothing="none")

    def sentence_values(self, statistics: Floats) -> Floats:
        """Turn counts ``[N, 10]`` into sentence BLEU ``[N]``; 0 without a common 4-gram."""
        return bleu(statistics, smoothing="none")

    def signature(self, references: int) -> str:
        """Return the settings, in the form of sacrebleu's signatures."""
        case = "lc" if self.lowercase else "mixed"
        hyphens = "split" if self.split_hyphens else "kept"
        made_by = f"deepwire-{version('deepwire')}"
        count = "var" if references < 0 else references
        return f"nrefs:{count}|case:{case}|tok:none|smooth:none|hyphens:{hyphens}|version:{made_by}"

    def details(self, totals: Floats) -> dict[str, float | tuple[float, ...]]:
        """Return precisions, brevity penalty, length ratio and lengths."""
        return bleu_details(totals, "none")


def multi_bleu_line(score: Score) -> str:
    """Write a score of ``MultiBleuMetric`` as the script prints it."""
    details = score.details
    precisions = details["precisions"]
    written = "/".join(f"{precision:.1f}" for precision in np.atleast_1d(precisions))
    return (
        f"BLEU = {score.value:.2f}, {written} "
        f"(BP={details['brevity_penalty']:.3f}, ratio={details['ratio']:.3f}, "
        f"hyp_len={details['hypothesis_length']:.0f}, ref_len={details['reference_length']:.0f})"
    )


def _sentence_counts(hypothesis: list[bytes], references: list[list[bytes]]) -> list[int]:
    length = len(hypothesis)
    closest = min((abs(len(reference) - length), len(reference)) for reference in references)[1]
    matches, counts = [], []
    for order in range(1, MAX_ORDER + 1):
        ngrams = _ngrams(hypothesis, order)
        allowed: Counter[NGram] = Counter()
        for reference in references:
            allowed |= _ngrams(reference, order)
        matches.append((ngrams & allowed).total())
        counts.append(max(length - order + 1, 0))
    return [length, closest, *matches, *counts]


def _ngrams(tokens: list[bytes], order: int) -> Counter[NGram]:
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))
