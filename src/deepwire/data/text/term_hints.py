"""Hints in a source: the translation that a term must have, written behind it.

A model that has read such hints in training, of words whose translations are known, puts what a hint says
into its translation (Dinu et al. 2019, Training Neural Machine Translation to Apply Terminology Constraints,
who call it "append"): `Der Hund< hound> bellt`, with two characters for private use as brackets, which the
vocabulary keeps whole.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

HINT_BEGIN, HINT_END = "\U000f9100", "\U000f9101"
HINT_MARKS = (HINT_BEGIN, HINT_END)

_WORD = re.compile(r"\S+")
_HINT = re.compile(f"{HINT_BEGIN}[^{HINT_END}]*{HINT_END}")
_MARKS = re.compile(f"[{HINT_BEGIN}{HINT_END}]")
_LONGEST = 3
"""Words of a source that have a hint together, and of a hint."""
_MOST = 3
"""Hints in a line of training text."""
_FEWEST_LETTERS = 3


class Hint(NamedTuple):
    """A translation that is asked for.

    Attributes:
        end: Where in the source the words end that it is of.
        text: The translation.
    """

    end: int
    text: str


def with_hints(source: str, hints: Iterable[Hint]) -> str:
    """A source with hints, none of them within another's words."""
    parts, at = [], 0
    for end, text in sorted(hints):
        parts += [_MARKS.sub("", source[at:end]), HINT_BEGIN, " ", text, HINT_END]
        at = end
    return "".join([*parts, _MARKS.sub("", source[at:])])


def without_hints(source: str) -> str:
    """A source as it was before it had hints."""
    return _HINT.sub("", source)


def drawn_hints(source: str, target: str, links: Iterable[Sequence[int]], seed: int) -> list[Hint]:
    """One to three hints of words that are translations of each other and of nothing else; perhaps none.

    Args:
        source: A training line.
        target: Its translation.
        links: Which words belong together: number in the source, number in the target, from 0.
        seed: Any whole number; the same for the same hints.
    """
    draw = random.Random(seed).random
    count = 1 + int(_MOST * draw())
    words = [[match.span() for match in _WORD.finditer(text)] for text in (source, target)]
    of_source: dict[int, set[int]] = {}
    of_target: dict[int, set[int]] = {}
    for source_word, target_word in links:
        of_source.setdefault(source_word, set()).add(target_word)
        of_target.setdefault(target_word, set()).add(source_word)
    spans = [
        range(first, first + length)
        for length in range(1, _LONGEST + 1)
        for first in range(len(words[0]) - length + 1)
    ]
    # Short ones come first more often than long ones.
    order = sorted(((draw() * len(span), span) for span in spans), key=lambda drawn: drawn[0])
    hints: list[Hint] = []
    taken: set[int] = set()
    for _, span in order:
        translation = _translation(span, of_source, of_target)
        if translation is None or taken & set(span):
            continue
        text = target[slice(*_within(target, words[1][translation[0]][0], words[1][translation[-1]][1]))]
        begin, end = _within(source, words[0][span[0]][0], words[0][span[-1]][1])
        if begin == end or (sum(map(str.isalpha, text)) < _FEWEST_LETTERS and text.isascii()):
            continue
        taken |= set(span)
        if translation[0] == 0 and text[1:].islower():
            text = text[0].lower() + text[1:]  # what begins a sentence has its capital from that
        hints.append(Hint(end, text))
        if len(hints) == count:
            break
    return hints


def _translation(
    span: Sequence[int], of_source: dict[int, set[int]], of_target: dict[int, set[int]]
) -> list[int] | None:
    """The target words of some source words, if they stand together and are of these alone."""
    target_words = sorted(set().union(*(of_source.get(word, set()) for word in span)))
    if (
        not target_words
        or len(target_words) > _LONGEST
        or target_words != list(range(target_words[0], target_words[-1] + 1))
    ):
        return None
    back = set().union(*(of_target[word] for word in target_words))
    return target_words if back == set(span) else None


def _within(text: str, begin: int, end: int) -> tuple[int, int]:
    """A part of a text without the signs at its ends."""
    while begin < end and not text[begin].isalnum():
        begin += 1
    while begin < end and not text[end - 1].isalnum():
        end -= 1
    return begin, end
