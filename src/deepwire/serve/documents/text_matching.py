"""Which parts of a translated sentence belong to which of its runs, as its alignment says."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from deepwire.data.subwords.text_tokens import Span
from deepwire.data.text.language_guess import UNSPACED
from deepwire.data.text.placeholders import find_placeholders
from deepwire.decoding.text_alignment import TextAlignment
from deepwire.serve.documents.document import Run

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
        before, after = self._behind(begin, low, high), self._before(end, low, high)
        order = (before, after) if attached else (after, before)
        share = low + round((high - low) * begin / max(1, len(text)))
        return next((place for place in order if place is not None), share)

    def _behind(self, at: int, low: int, high: int) -> int | None:
        """The place behind the translation of the last word before a place in the sentence."""
        ends = [
            (source[1], min(tokens.stop, high))
            for source, tokens in self._linked
            if source[1] <= at and tokens.start < high and tokens.stop > low
        ]
        return max(ends)[1] if ends else None

    def _before(self, at: int, low: int, high: int) -> int | None:
        """The place before the translation of the first word behind a place in the sentence."""
        begins = [
            (source[0], max(tokens.start, low))
            for source, tokens in self._linked
            if source[0] >= at and tokens.start < high and tokens.stop > low
        ]
        return min(begins)[1] if begins else None

    @cached_property
    def _token_begins(self) -> list[int]:
        return list(accumulate((len(token) for token in self.tokens), initial=0))

    def _tokens_in(self, span: Span) -> range:
        """The tokens that a span of the translation has something of."""
        first, last = bisect_right(self._token_begins, span[0]) - 1, bisect_left(self._token_begins, span[1])
        return range(first, last)

    @cached_property
    def _linked(self) -> list[tuple[Span, range]]:
        """Spans of the sentence and tokens: of links, and of words without any that both texts have once."""
        pairs = [(source, self._tokens_in(target)) for source, target in self.links]
        words = tokens_of("".join(run.text for run in self.runs))
        linked = {token for _, tokens in pairs for token in tokens}
        counts, others = Counter(words), Counter(self.tokens)
        begins = dict(zip(words, accumulate((len(word) for word in words), initial=0), strict=False))
        for token, word in enumerate(self.tokens):
            if token not in linked and counts[word] == others[word] == 1 and word.isalnum():
                pairs.append(((begins[word], begins[word] + len(word)), range(token, token + 1)))
        return pairs
