"""Tokenised BLEU as Moses' multi-bleu.perl counts it, for comparison with older papers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from deepwire.evaluation.metric import Floats, Metric, Score
from deepwire.evaluation.ngram_precision import MAX_ORDER, WIDTH, bleu, bleu_details

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
        return f"nrefs:{references}|case:{case}|tok:none|smooth:none|hyphens:{hyphens}|version:{made_by}"

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
