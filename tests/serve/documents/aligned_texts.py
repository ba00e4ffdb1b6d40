"""Translations with known alignments: what a model would say, and which words belong together."""

from __future__ import annotations

import io
import random
import re
import zipfile

from deepwire.data.subwords.text_tokens import TextTokens
from deepwire.data.text.sentences import SentenceSplitter
from deepwire.decoding.text_alignment import TextAlignment
from deepwire.decoding.translation_io import Candidate
from deepwire.serve.documents.document import Options
from deepwire.serve.documents.registry import read_document
from deepwire.serve.documents.translation_plan import TranslationPlan


def aligned(source, target, links, unit=r"\S+"):
    """The alignment of two texts, of whose words those in `links` belong together."""

    def side(text):
        found = list(re.finditer(unit, text))
        words = tuple(match[0] for match in found)
        return TextTokens(text, words, tuple(match.span() for match in found))

    return TextAlignment(side(source), side(target), tuple(sorted(links)))


def straight(count):
    return list(range(count))


def backwards(count):
    return list(range(count))[::-1]


def shuffled(seed):
    """An order that moves words by a few places."""
    generator = random.Random(seed)
    return lambda count: sorted(range(count), key=lambda place: place + generator.uniform(0, 3))


def reordered(text, order, change=str.upper):
    """The words of a text in capitals, in another order, with their alignment."""
    if order is straight:
        target, unit = re.sub("(?<=[^ ]) +", " ", change(text)), r"\w+|[^\w\s]"
        counts = [len(re.findall(unit, one)) for one in (text, target)]
        links = [(place, place) for place in range(counts[0])]
        return target, aligned(text, target, links, unit) if counts[0] == counts[1] else None
    words = text.split()
    places = order(len(words))
    target = " ".join(change(words[place]) for place in places)
    return target, aligned(text, target, [(place, number) for number, place in enumerate(places)])


def translated(document, order, language="en", change=str.upper):
    """The pieces of a document whose sentences have their words in another order."""
    plan = TranslationPlan(document.units, SentenceSplitter("de"), language)
    return plan.translated_units([answer(*reordered(text, order, change)) for text in plan.texts])


def answer(text, alignment=None):
    return Candidate(text, (), 0.0, 0.0, alignment)


def in_other_words(name, content, change=str.upper, *, target="en", paths=(), warn=print):
    """The file with `change` in place of a model, which keeps the order of words."""
    options = Options("de", target, paths, warn)
    document = read_document(name, content.encode() if isinstance(content, str) else content, options)
    return document.render(translated(document, straight, target, change))


def package(files, kind=zipfile.ZIP_DEFLATED):
    """A package of files, by their names."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", kind) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def part_of(content, name):
    """A file of a package."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return archive.read(name).decode()


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
