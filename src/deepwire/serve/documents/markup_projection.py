"""Where the runs of a sentence are in its translation: elements at their words, or all in their order.

Projected, an element becomes a stretch of the translation: the one with the most words of its own and the
fewest of others (as the alignment says) within the stretch of the element around it. Where several want the
same words, the one with more of its own takes them. An element without any text goes beside its neighbours.

Distributed, the translation is cut into a piece for each run, in their order: each has as many words
as possible that come from its run, and about its share of the length.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from deepwire.data.subwords.text_tokens import Span
from deepwire.data.text.language_guess import UNSPACED
from deepwire.data.text.placeholders import find_placeholders
from deepwire.decoding.text_alignment import TextAlignment
from deepwire.serve.documents.document import Marks, Piece, Run

NO_SPACE_BEFORE = frozenset(".,;:!?)]}»”…。，、；：！？）」』")
"""Signs that stand right behind a word."""
MAX_STEPS = 300_000
"""The most steps of a search over tokens and runs of a sentence; a larger one is not begun."""
_TOKENS = re.compile(rf"\s+|[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
_DISTINCT = 3
"""Letters that are enough to tell a part of a word by."""


def tokens_of(text: str) -> list[str]:
    """The words, signs and spaces that a text consists of; writing without spaces is cut at each letter."""
    return _TOKENS.findall(text)


def tokens_for(translation: str, runs: Sequence[Run]) -> list[str]:
    """The tokens of a translation, cut where a fixed run is a part of a word: `URL` and `S` of `URLS`."""
    tokens = tokens_of(translation)
    parts = set(_parts_of_words(runs)) if len(runs) * len(tokens) <= MAX_STEPS else ()
    if not parts:
        return tokens
    # Spaces and signs stay whole, as they have no part of a word.
    cuts = re.compile(f"({'|'.join(sorted(parts, key=len, reverse=True))})", re.IGNORECASE)
    return [part for token in tokens for part in cuts.split(token) if part]


def _parts_of_words(runs: Sequence[Run]) -> Iterator[str]:
    """Patterns for what fixed runs have of a word that goes on before or behind them.

    Of a short one the rest of the word must be the same, or it would be found in any word.
    """
    pieces = iter([(token, run.fixed) for run in runs for token in tokens_of(run.text)])
    for word in tokens_of("".join(run.text for run in runs)):
        before = ""
        while len(before) < len(word):
            part, is_fixed = next(pieces)
            after = word[len(before) + len(part) :]
            if is_fixed and part != word and not part.isspace():
                if len(part) < _DISTINCT:
                    yield rf"(?<=\b{re.escape(before)}){re.escape(part)}(?={re.escape(after)}\b)"
                else:
                    start, stop = ("" if rest else r"\b" for rest in (before, after))
                    yield f"{start}{re.escape(part)}{stop}"
            before += part


def _places(wanted: str, tokens: Sequence[str]) -> list[range]:
    """Where tokens, between which there may be spaces, say what is wanted, which has none."""
    places = []
    for begin in range(len(tokens) if wanted else 0):
        rest, end = wanted, begin
        while rest and end < len(tokens):
            if not (rest.startswith(tokens[end]) or (end > begin and tokens[end].isspace())):
                break
            rest, end = rest.removeprefix(tokens[end]), end + 1
        if not rest:
            places.append(range(begin, end))
    return places


@dataclass(frozen=True)
class Matching:
    """A sentence of several runs and its translation.

    Attributes:
        translation: Of the whole sentence.
        runs: What the sentence consists of.
        links: Spans of the source and of the translation that belong together.
        is_aligned: Whether they are known.
    """

    translation: str
    runs: Sequence[Run]
    links: Sequence[tuple[Span, Span]]
    is_aligned: bool = True

    @classmethod
    def of(cls, translation: str, runs: Sequence[Run], alignment: TextAlignment | None) -> Matching:
        """From an alignment, if there is one and it is not that of other texts."""
        lengths = sum(len(run.text) for run in runs), len(translation)
        if alignment is None or lengths != (len(alignment.source.text), len(alignment.target.text)):
            return cls(translation, runs, (), is_aligned=False)
        spans = alignment.source.spans, alignment.target.spans
        links = [(spans[0][source], spans[1][target]) for source, target in alignment.subword_links]
        return cls(translation, runs, [link for link in links if all(begin < end for begin, end in link)])

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens of the translation."""
        return tokens_for(self.translation, self.runs)

    @cached_property
    def is_literal(self) -> bool:
        """Whether the translation has all fixed runs, and there are no elements."""
        fixed = {place for place, run in enumerate(self.runs) if run.fixed}
        return len({run.marks for run in self.runs}) == 1 and fixed <= self.verbatim.keys()

    @cached_property
    def copies(self) -> dict[int, list[range]]:
        """The tokens that can stand for each fixed run: those that say what it says.

        Spaces and, where nothing is the same, upper and lower case may differ. Otherwise they are what the
        translation has for a field, or a placeholder of its kind that no run has, such as `{nom}` for
        `{name}`. No other word may give way to a fixed run.
        """
        folded = [token.casefold() for token in self.tokens]
        wanted = {place: "".join(run.text.split()) for place, run in enumerate(self.runs) if run.fixed}
        copies = {
            place: _places(text, self.tokens)
            or _places(text.casefold(), folded)
            or _places("".join(self.fields[place].split()) if self.runs[place].filled else "", self.tokens)
            for place, text in wanted.items()
        }
        known = {copy for found in copies.values() for copy in found}
        places = {at: token for token, at in enumerate(self._token_begins)}
        strange = [
            (kind, range(places[begin], places[end]))
            for begin, end, kind in find_placeholders(self.translation)
            if kind != "number" and {begin, end} <= places.keys()
        ]
        for place in (place for place, found in copies.items() if not found):
            text = self.runs[place].text
            kinds = [kind for begin, end, kind in find_placeholders(text) if (begin, end) == (0, len(text))]
            copies[place] = [copy for kind, copy in strange if kind in kinds and copy not in known]
        return copies

    @cached_property
    def begins(self) -> list[int]:
        """Where each run begins in the sentence, and the end of the last."""
        return list(accumulate((len(run.text) for run in self.runs), initial=0))

    @cached_property
    def shares(self) -> list[dict[int, float]]:
        """How much of each token comes from each run; nothing, or 1 together.

        A fixed run has what says what it says, and nothing else: it would take the place of other words.
        """
        copied = {token: place for place, tokens in self.verbatim.items() for token in tokens}
        shares: list[dict[int, float]] = []
        for token, linked in enumerate(self._linked_shares):
            free = {run: count for run, count in linked.items() if not self.runs[run].fixed}
            total = sum(free.values())
            share = {run: count / total for run, count in free.items()}
            shares.append({copied[token]: 1.0} if token in copied else share)
        return shares

    @cached_property
    def verbatim(self) -> dict[int, range]:
        """The tokens that say what a fixed run says, each of them for one run."""
        ranges: dict[int, range] = {}
        taken: set[int] = set()
        for place, copies in self.copies.items():
            linked = {
                tokens: sum(self._linked_shares[token].get(place, 0.0) for token in tokens)
                for tokens in copies
                if taken.isdisjoint(tokens)
            }
            best = max(linked, key=linked.__getitem__, default=range(0))
            # A single sign may be one of the sentence.
            if linked.get(best) or len(best) > 1 or any(self.tokens[token].isalnum() for token in best):
                ranges[place] = best
                taken.update(best)
        return ranges

    @cached_property
    def fields(self) -> list[str]:
        """The translation of each result of a field, where that is one stretch; else nothing."""
        said = [""] * len(self.runs)
        for place, run in enumerate(self.runs):
            own = [token for token, share in enumerate(self._linked_shares) if set(share) == {place}]
            if run.fixed and run.filled and own:
                stretch = range(own[0], own[-1] + 1)
                if all(token in own or self.tokens[token].isspace() for token in stretch):
                    said[place] = "".join(self.tokens[token] for token in stretch)
        return said

    @cached_property
    def _linked_shares(self) -> list[dict[int, float]]:
        """How much of each run is linked to each token."""
        shares: list[dict[int, float]] = [defaultdict(float) for _ in self.tokens]
        owners = [place for place, run in enumerate(self.runs) for _ in run.text]
        for (begin, end), tokens in self._linked:
            runs = Counter(owners[begin:end])
            for token in tokens:
                for run, count in runs.items():
                    shares[token][run] += count / (end - begin)
        return shares

    def place_of(self, begin: int, end: int, low: int, high: int) -> int:
        """Before which token a part of the sentence without a translation belongs, from `low` to `high`.

        It is behind what comes from the word that it is attached to, or before what comes from the next one.
        """
        text = "".join(run.text for run in self.runs)
        attached = begin > 0 and not text[begin - 1].isspace()
        near = [
            (word, max(tokens.start, low), min(tokens.stop, high))
            for word, tokens in self._linked
            if tokens.start < high and tokens.stop > low
        ]
        before = max(((word[1], stop) for word, _, stop in near if word[1] <= begin), default=())
        after = min(((word[0], start) for word, start, _ in near if word[0] >= end), default=())
        share = 0, low + round((high - low) * begin / max(1, len(text)))
        first, second = (before, after) if attached else (after, before)
        return (first or second or share)[1]

    @cached_property
    def _token_begins(self) -> list[int]:
        return list(accumulate((len(token) for token in self.tokens), initial=0))

    @cached_property
    def _linked(self) -> list[tuple[Span, range]]:
        """Spans of the sentence and tokens: of links, and of words without any that both texts have once."""
        begins_of = self._token_begins
        pairs = [
            (source, range(bisect_right(begins_of, begin) - 1, bisect_left(begins_of, end)))
            for source, (begin, end) in self.links
        ]
        words = tokens_of("".join(run.text for run in self.runs))
        linked = {token for _, tokens in pairs for token in tokens}
        counts, others = Counter(words), Counter(self.tokens)
        begins = dict(zip(words, accumulate((len(word) for word in words), initial=0), strict=False))
        for token, word in enumerate(self.tokens):
            if token not in linked and counts[word] == others[word] == 1 and word.isalnum():
                pairs.append(((begins[word], begins[word] + len(word)), range(token, token + 1)))
        return pairs


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


def project(matching: Matching) -> list[Piece] | None:
    """The translation in pieces: each element once, and each fixed run once, with its own text.

    None where the sentence is too large, or needs an alignment that there is not.
    """
    is_small = len(matching.runs) * len(matching.tokens) <= MAX_STEPS
    if not is_small or not (matching.is_aligned or matching.is_literal):
        return None
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
