"""BLEU from counts, for many corpora at once (Papineni et al. 2002, section 2)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from deepwire.evaluation.metric import Floats

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
