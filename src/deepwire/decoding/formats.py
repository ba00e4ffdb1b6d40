"""How answers are written: plain text, scores, n-best lists as Moses writes them, JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable

from deepwire.decoding.scoring import PairScore
from deepwire.decoding.translation import Translation

TranslationFormat = Callable[[Translation], str]
"""The line or lines of an answer, without the last line end."""


def plain(translation: Translation) -> str:
    """The best translation."""
    return translation.text


def scored(translation: Translation) -> str:
    """Score, tab, best translation."""
    return f"{translation.score:.4f}\t{translation.text}"


def n_best(translation: Translation) -> str:
    """One line for each candidate: `line ||| text ||| Score= log-probability ||| score`, lines from 0."""
    return "\n".join(
        f"{translation.line - 1} ||| {one.text} ||| Score= {one.log_probability:.4f} ||| {one.score:.4f}"
        for one in translation.candidates
    )


def as_json(translation: Translation) -> str:
    """A JSON object: the fields that came with the line, its text, all candidates and the best one's text."""
    best = translation.candidates[0]
    record = {
        **translation.request.fields,
        **({"to": translation.request.to} if translation.request.to else {}),
        "line": translation.line,
        "text": translation.request.text,
        "translation": best.text,
        "score": best.score,
        "log_probability": best.log_probability,
        "tokens": best.tokens,
    }
    if len(translation.candidates) > 1:
        record["n_best"] = [
            {"translation": one.text, "score": one.score, "log_probability": one.log_probability}
            for one in translation.candidates
        ]
    line = json.dumps(record, ensure_ascii=False)
    # A field handed through may hold half a surrogate pair, which only an escape can write.
    return line if line.encode(errors="replace").decode() == line else json.dumps(record)


def pair_score(score: PairScore, *, normalize: bool, per_token: bool) -> str:
    """The log-probability (per subword with `normalize`), then, with `per_token`, a tab and those of all."""
    value = score.mean if normalize else score.log_probability
    if not per_token:
        return f"{value:.6f}"
    return f"{value:.6f}\t{' '.join(f'{one:.6f}' for one in score.token_log_probabilities)}"


def pair_score_json(score: PairScore, *, normalize: bool, per_token: bool) -> str:
    """The same as a JSON object; `flag` says why a pair has no probability."""
    record: dict[str, object] = {
        "line": score.line,
        "score": score.mean if normalize else score.log_probability,
        "tokens": len(score.token_log_probabilities),
        "flag": score.flag,
    }
    if per_token:
        record["subwords"] = [*score.tokens, "</s>"] if score.flag is None else []
        record["log_probabilities"] = score.token_log_probabilities
    return json.dumps(record, ensure_ascii=False)
