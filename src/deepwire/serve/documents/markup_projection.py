"""Inline markup in a translated sentence: each element at the words that come from its own.

An element becomes a stretch of the translation: the one with the most words of its own and the fewest of
others (as the alignment says) within the stretch of the element around it. Where several want the same words,
the one with more of its own takes them. An element without any text is put where the words beside it are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
