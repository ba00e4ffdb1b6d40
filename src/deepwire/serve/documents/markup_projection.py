"""Where the runs of a sentence are in its translation: elements at their words, or all in their order.

Projected, an element becomes a stretch of the translation: the one with the most words of its own and the
fewest of others (as the alignment says) within the stretch of the element around it. Where several want the
same words, the one with more of its own takes them. An element without any text goes beside its neighbours.

Distributed, the translation is cut into a piece for each run, in their order: each has as many words
as possible that come from its run, and about its share of the length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from deepwire.serve.documents.document import Marks, Piece, Run
from deepwire.serve.documents.text_matching import MAX_STEPS, NO_SPACE_BEFORE, Matching

_OTHERS = 0.8
"""The cost of a word of others in a stretch, when one of its own is worth 1."""
_LINKED = 3
"""A word of others is taken only where a word without links is so many tokens farther away."""


@dataclass(eq=False)
class _Node:
    """An element, or a fixed run.

    Attributes:
        marks: The elements that its text is in: of an element itself too.
        begin, end: Its text in the sentence.
        runs: Which runs are in it.
        run: The number of the fixed run; None for an element.
        children: What is in it, in order.
    """

    marks: Marks
    begin: int
    end: int
    runs: set[int] = field(default_factory=set)
    run: int | None = None
    children: list[_Node] = field(default_factory=list)

    @property
    def mark(self) -> int | None:
        """The number of the element; None for a run."""
        return self.marks[-1] if self.run is None and self.marks else None


class _Stretch(NamedTuple):
    """Tokens of the translation, and how much better they are for a child than none."""

    value: float
    begin: int
    end: int


def is_projectable(matching: Matching) -> bool:
    """Whether a sentence is of a size that its markup is projected in time."""
    return len(matching.runs) * len(matching.tokens) <= MAX_STEPS


def project(matching: Matching) -> list[Piece]:
    """The translation in pieces: each element once, and each fixed run once, with its own text."""
    root = _tree(matching)
    pieces = list(_Projection(matching).pieces(root, 0, len(matching.tokens)))
    return _with_spaces(pieces, matching.runs)


def _tree(matching: Matching) -> _Node:
    runs, begins = matching.runs, matching.begins
    root = _Node((), 0, begins[-1], set(range(len(runs))))
    path = [root]
    for place, run in enumerate(runs):
        begin, end = begins[place], begins[place + 1]
        depth = 0
        while depth < min(len(run.marks), len(path) - 1) and path[depth + 1].mark == run.marks[depth]:
            depth += 1
        del path[depth + 1 :]
        for level in range(depth, len(run.marks)):
            node = _Node(run.marks[: level + 1], begin, end)
            path[-1].children.append(node)
            path.append(node)
        for node in path[1:]:
            node.end = end
            node.runs.add(place)
        if run.fixed:
            path[-1].children.append(_Node(run.marks, begin, end, {place}, place))
    return root


class _Projection:
    def __init__(self, matching: Matching) -> None:
        self._matching = matching

    def pieces(self, node: _Node, low: int, high: int) -> Iterator[Piece]:
        """The pieces of an element, or of the whole sentence, that is the tokens from `low` to `high`."""
        tokens, at = self._matching.tokens, low
        if node.marks:
            yield Piece("", None, node.marks)
        for begin, end, child in self._placed(node, low, high):
            if begin > at:
                yield Piece("".join(tokens[at:begin]), None, node.marks)
            at = end
            if child.run is None:
                yield from self.pieces(child, begin, end)
            else:
                yield Piece(self._matching.runs[child.run].text, child.run, child.marks)
        if high > at:
            yield Piece("".join(tokens[at:high]), None, node.marks)

    def _placed(self, node: _Node, low: int, high: int) -> list[tuple[int, int, _Node]]:
        """The tokens of each child, in their order."""
        placed: list[tuple[int, int, _Node]] = []
        rest = list(node.children)
        stretches = {id(child): self._best(child, placed, low, high) for child in rest}
        while rest:
            best = max(rest, key=lambda child: stretches[id(child)].value)
            value, begin, end = stretches[id(best)]
            if value <= 0:
                break
            placed.append((begin, end, best))
            rest.remove(best)
            for child in rest:
                other = stretches[id(child)]
                if other.begin < end and begin < other.end:
                    stretches[id(child)] = self._best(child, placed, low, high)
        for child in rest:
            placed.append((*self._without_words(child, placed, low, high), child))
        order = {id(child): number for number, child in enumerate(node.children)}
        # At one place what is empty comes first, and then in the order of the sentence.
        return sorted(
            placed,
            key=lambda placement: (placement[0], placement[0] != placement[1], order[id(placement[2])]),
        )

    def _values(self, child: _Node, low: int, high: int) -> list[float]:
        values = []
        for share in self._matching.shares[low:high]:
            child_share = sum(part for run, part in share.items() if run in child.runs)
            values.append(child_share - _OTHERS * (sum(share.values()) - child_share))
        return values

    def _best(self, child: _Node, placed: Sequence[tuple[int, int, _Node]], low: int, high: int) -> _Stretch:
        """The stretch of free tokens with the largest sum (Kadane's algorithm), as short as it can be."""
        best, begin, value = _Stretch(0.0, low, low), low, 0.0
        if child.begin == child.end:
            return best
        taken = {token for begin, end, _ in placed for token in range(begin, end)}
        for token, token_value in enumerate(self._values(child, low, high), low):
            if token in taken:
                begin, value = token + 1, 0.0
                continue
            if value <= 0:
                begin, value = token, 0.0
            value += token_value
            if value > best.value:
                best = _Stretch(value, begin, token + 1)
        return best

    def _without_words(
        self, child: _Node, placed: Sequence[tuple[int, int, _Node]], low: int, high: int
    ) -> tuple[int, int]:
        """A place for what has no word of the translation; with text of its own the nearest free word."""
        place = self._matching.place_of(child.begin, child.end, low, high)
        if child.run is None and child.end > child.begin:
            taken = {token for begin, end, _ in placed for token in range(begin, end)}
            tokens = self._matching.tokens
            free = [token for token in range(low, high) if token not in taken and tokens[token].isalnum()]
            if free:
                shares = self._matching.shares
                best = min(
                    free,
                    key=lambda token: (
                        -sum(part for run, part in shares[token].items() if run in child.runs),
                        abs(token - place) + _LINKED * bool(shares[token]),
                    ),
                )
                return best, best + 1
        for begin, end, _ in placed:
            if begin < place < end:
                place = end if place - begin >= end - place else begin
        return place, place


def _with_spaces(pieces: Sequence[Piece], runs: Sequence[Run]) -> list[Piece]:
    """With spaces around fixed runs, where the sentence has them and the translation has words."""
    texts = ["", *(run.text for run in runs), ""]
    spaced: list[Piece] = []
    for number, piece in enumerate(pieces):
        if piece.run is None:
            spaced.append(piece)
            continue
        left, _, right = texts[piece.run : piece.run + 3]
        before = next((earlier.text for earlier in reversed(spaced) if earlier.text), "")[-1:]
        after = next((later.text for later in pieces[number + 1 :] if later.text), "")[:1]
        parted = before and not before.isspace() and left[-1:].isspace()
        spaced += [Piece(" ", None, piece.marks)] * bool(parted) + [piece]
        wanted = after and not after.isspace() and after not in NO_SPACE_BEFORE
        if wanted and right[:1].isspace():
            spaced.append(Piece(" ", None, piece.marks))
    return spaced


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
    for place, piece in zip(places, _spaced_in_order(found, runs), strict=True):
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


def _spaced_in_order(pieces: list[str], runs: Sequence[Run]) -> list[str]:
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
