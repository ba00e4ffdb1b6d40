"""A translation cut into as many pieces as its sentence has runs (stretches of one format), in their order.

Each piece has as many words as possible that come from its run, and about its share of the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from deepwire.serve.documents.document import Run
from deepwire.serve.documents.text_matching import MAX_STEPS, NO_SPACE_BEFORE, Matching

_LENGTH_WEIGHT = 0.05
_EMPTY_COST = 0.75
_MISSING_COST = 100.0
"""Costs of a run that stays empty, and of one that must not."""
_COPY_WEIGHT = 5.0
"""For a fixed run in place of its own text in the translation, which would be there twice otherwise."""
Ranges = list[tuple[int, int]]


def distribute(matching: Matching) -> list[str]:
    """Cut the translation of a sentence into one piece for each run.

    Together the pieces are the translation, but that a fixed run has its own text, in place of that text if
    the translation has it, and spaces next to it are those of the sentence.
    """
    places = [place for place, run in enumerate(matching.runs) if run.text]
    runs = [matching.runs[place] for place in places]
    runs = [run._replace(fixed=run.fixed or run.text.isspace()) for run in runs]
    tokens = matching.tokens
    expected = [0.0 if run.fixed else float(len(run.text)) for run in runs]
    scale = len(tokens) / (sum(expected) or 1.0)
    expected = [length * scale for length in expected]
    if len(tokens) ** 2 * len(runs) > MAX_STEPS:
        ranges = _by_length(expected, len(tokens))
    else:
        hits = [[share.get(place, 0.0) for share in matching.shares] for place in places]
        copies = [matching.copies.get(place, []) for place in places]
        ranges = _by_words(tokens, runs, hits, expected, copies)
    found = [
        run.text if run.fixed else "".join(tokens[begin:end])
        for run, (begin, end) in zip(runs, ranges, strict=True)
    ]
    pieces = [""] * len(matching.runs)
    for place, piece in zip(places, _with_spaces(found, runs), strict=True):
        pieces[place] = piece
    return pieces


def _by_length(expected: Sequence[float], count: int) -> Ranges:
    ends = [min(count, round(end)) for end in accumulate(expected)]
    ends[-1] = count
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _by_words(
    tokens: Sequence[str],
    runs: Sequence[Run],
    hits: Sequence[Sequence[float]],
    expected: Sequence[float],
    copies: Sequence[Sequence[range]],
) -> Ranges:
    """The best cut: `best[end]` is the score of the runs so far if they take the tokens before `end`."""
    count = len(tokens)
    words = [0, *accumulate(not token.isspace() for token in tokens)]
    best = [0.0] + [float("-inf")] * count
    begins: list[list[int]] = []
    for place, (run, run_hits, length) in enumerate(zip(runs, hits, expected, strict=True)):
        total = [0.0, *accumulate(run_hits)]
        empty_cost = _MISSING_COST if run.filled else _EMPTY_COST if run.text.strip() else 0.0
        after = [float("-inf")] * (count + 1)
        back = [0] * (count + 1)
        for begin in range(count + 1):
            if best[begin] == float("-inf"):
                continue
            ends = _fixed_ends(begin, tokens, copies[place]) if run.fixed else range(begin, count + 1)
            for end in ends:
                score = best[begin] + total[end] - total[begin]
                if run.fixed:
                    score += _COPY_WEIGHT * (words[end] > words[begin])
                else:
                    score -= _LENGTH_WEIGHT * abs(end - begin - length)
                    score -= empty_cost * (words[end] == words[begin])
                if score > after[end]:
                    after[end], back[end] = score, begin
        best = after
        begins.append(back)
    ranges: Ranges = []
    end = count
    if best[count] == float("-inf"):  # fixed runs alone, and a translation that has other words
        return [(0, 0)] * len(runs)
    for back in reversed(begins):
        ranges.append((back[end], end))
        end = back[end]
    return ranges[::-1]


def _fixed_ends(begin: int, tokens: Sequence[str], copies: Sequence[range]) -> set[int]:
    """Where a fixed run can end: it takes spaces, and what says what it says, but never another word."""
    starts = {begin, begin + (begin < len(tokens) and tokens[begin].isspace())}
    ends = starts | {copy.stop for copy in copies if copy.start in starts}
    return ends | {end + 1 for end in ends if end < len(tokens) and tokens[end].isspace()}


def _outside(before: str, after: str, is_left_inner: bool) -> tuple[str, str]:
    """Two pieces whose runs have no space between them, with one that they have on the outer side."""
    left, right = before.rstrip(), after.lstrip()
    space = before[len(left) :] + after[: len(after) - len(right)]
    return (left, space + right) if is_left_inner else (left + space, right)


def _with_spaces(pieces: list[str], runs: Sequence[Run]) -> list[str]:
    """Spaces where two runs meet, on the side on which the sentence has them."""
    last = ""  # of the characters in front of the left piece
    for place, (left, right) in enumerate(pairwise(runs)):
        if place:
            last = pieces[place - 1][-1:] or last
        spaced_left, spaced_right = left.text[-1:].isspace(), right.text[:1].isspace()
        if left.fixed and right.fixed:
            continue
        before, after = pieces[place], pieces[place + 1]
        if not (spaced_left or spaced_right):
            if not (left.fixed or right.fixed):
                pieces[place : place + 2] = _outside(before, after, len(left.marks) > len(right.marks))
            continue
        before = before if left.fixed else before.rstrip()
        after = after if right.fixed else after.lstrip()
        said = before[-1:] or last
        if left.text.isspace() or right.text.isspace():
            # One is there; where both have one, something is between them, such as an image.
            if spaced_left and spaced_right and right.fixed:
                before += " " * bool(before)
            elif spaced_left and spaced_right:
                after = " " * (after[:1] not in ("", *NO_SPACE_BEFORE)) + after
        elif right.fixed or (spaced_left and not left.fixed):
            # The word between two runs may have no translation, but its spaces keep them apart.
            parts = bool(before) or after[:1] not in NO_SPACE_BEFORE
            before += " " if parts and said and not said.isspace() else ""
            # Where both have one, something may be between them, such as an image.
            wanted = spaced_right and not right.fixed and after and after[0] not in NO_SPACE_BEFORE
            after = " " + after if wanted else after
        else:
            wanted = bool(after) and after[0] not in NO_SPACE_BEFORE
            after = " " + after if wanted and not said.isspace() else after
        pieces[place : place + 2] = before, after
    return pieces
