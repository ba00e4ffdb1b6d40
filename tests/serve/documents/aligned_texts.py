"""Translations with known alignments: what a model would say, and which words belong together."""

from __future__ import annotations

import random
import re

from deepwire.data.subwords.text_tokens import TextTokens, words_of
from deepwire.data.text.sentences import SentenceSplitter
from deepwire.decoding.text_alignment import TextAlignment
from deepwire.serve.documents.translation_plan import TranslationPlan


def aligned(source, target, links):
    """The alignment of two texts, of whose words those in `links` belong together."""
    first, second = (
        TextTokens(text, tuple(text.split()), tuple(words_of(text))) for text in (source, target)
    )
    return TextAlignment(first, second, tuple(sorted(links)))


def reordered(text, order):
    """The words of a text in capitals, in another order, with their alignment."""
    words = text.split()
    places = order(len(words))
    target = " ".join(words[place].upper() for place in places)
    return target, aligned(text, target, [(place, number) for number, place in enumerate(places)])


def translated(document, order, language="en"):
    """The pieces of a document whose sentences have their words in another order."""
    plan = TranslationPlan(document.units, SentenceSplitter("de"), language, aligned=True)
    answers = [reordered(text, order) for text in plan.texts]
    return plan.finished([text for text, _ in answers], [alignment for _, alignment in answers])


def backwards(count):
    return list(range(count))[::-1]


def shuffled(seed):
    """An order that moves words by a few places."""
    generator = random.Random(seed)
    return lambda count: sorted(range(count), key=lambda place: place + generator.uniform(0, 3))


BETWEEN = (" ", " ", ". W. ", "")


def markup(seed, tags=("b", "i", "a", "span"), point="<wbr>", between=BETWEEN):
    """A paragraph of random inline markup, of words that are all different."""
    generator = random.Random(seed)
    number = iter(range(1000))

    def part(depth):
        kind = generator.random()
        if kind < 0.55 or depth == 3:
            count = generator.randint(1, 4)
            return " ".join(f"w{next(number)}" for _ in range(count))
        if kind < 0.65:
            return point
        name = generator.choice(tags)
        inside = joined(depth + 1, generator.randint(0, 3))
        return f'<{name} n="{next(number)}">{inside}</{name}>'

    def joined(depth, count):
        parts = [part(depth) for _ in range(count)]
        return "".join(generator.choice(between) + one for one in parts).strip()

    return joined(0, generator.randint(1, 7))


def tags_of(text):
    return sorted(re.findall("<[^<>]*>", text))


def is_nested(text):
    """Whether each element ends, and none within another that it did not begin in."""
    stack = []
    for end, name in re.findall(r"<(/?)(\w+)[^<>]*>", text):
        if name in ("wbr", "x"):
            continue
        if not end:
            stack.append(name)
        elif not stack or stack.pop() != name:
            return False
    return not stack


def words_in(text):
    """The words of a text without its markup, in their order."""
    return re.sub("<[^<>]*>", " ", text).split()
