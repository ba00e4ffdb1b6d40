"""Whether inline markup is kept, and at the right words, when alignments of a model put it into translations.

    python benchmarks/markup.py MODEL SOURCE REFERENCE GOLD [--layer 2] [--head 1] [--step reads]

In each line one to three words next to each other are bold, and an image is somewhere. They are put into
the reference by the alignment of the model, and compared with the words that the gold alignment
(`benchmarks/word_alignments.py`) surely links to them, where these stand together. Prints JSON: the
(`benchmarks/word_alignments.py`) surely links to them, where these stand together. Prints as JSON the
words are exactly right; precision and recall of bold words.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

import torch

import deepwire
from deepwire.analysis.subject.model_and_text import open_model
from deepwire.data.subwords.text_tokens import TextTokens
from deepwire.data.text.files import read_lines
from deepwire.data.text.sentences import SentenceSplitter
from deepwire.decoding.attention_alignment import AlignedPair, AttentionAligner
from deepwire.decoding.decoding_config import with_settings
from deepwire.decoding.model_loading import stored_config
from deepwire.decoding.text_alignment import TextAlignment
from deepwire.documents.formats.hypertext import HtmlDocument
from deepwire.documents.translation_plan import TranslationPlan
from deepwire.evaluation.alignment_error import read_gold


def marked(source: str, wanted: range, place: int) -> str:
    """The line as HTML, some words bold, an image in front of another."""
    words = source.split()
    words[wanted.start] = "<b>" + words[wanted.start]
    words[wanted.stop - 1] += "</b>"
    words[place] = "<img>" + words[place]
    return " ".join(words).replace("<img><b>", "<b><img>")


def put(page: str, translation: str, alignment: TextAlignment) -> str:
    """The page with a translation."""
    document = HtmlDocument(page)
    plan = TranslationPlan(document.units, SentenceSplitter(sentences=False), aligned=True)
    assert plan.texts == [alignment.source.text]
    return document.text_with(plan.finished([translation], [alignment]))


def is_kept(found: str) -> bool:
    """Whether all tags are there, well nested."""
    return re.sub("[^<>]*(<[^<>]*>)[^<>]*", r"\1", found) in (
        "<b></b><img>",
        "<img><b></b>",
        "<b><img></b>",
    )


def main() -> None:
    """Read the options, print the figures."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("model")
    options.add_argument("files", nargs=3, type=Path, metavar=("SOURCE", "REFERENCE", "GOLD"))
    options.add_argument("--layer", type=int)
    options.add_argument("--head", type=int)
    options.add_argument("--step")
    given = options.parse_args()
    chosen = {name: getattr(given, name) for name in ("layer", "head", "step") if getattr(given, name)}
    sources, targets = (
        [" ".join(str(line).split()) for line in read_lines(path)] for path in given.files[:2]
    )
    gold = read_gold(
        given.files[2], [(len(s.split()), len(t.split())) for s, t in zip(sources, targets, strict=True)]
    )
    loaded = open_model(given.model).loaded
    config = with_settings(stored_config(loaded), {"alignment": chosen})
    vocabularies = loaded.vocabularies
    ids = [
        (vocabularies.source.encode(s), vocabularies.target.encode(t))
        for s, t in zip(sources, targets, strict=True)
    ]
    aligner = AttentionAligner(loaded.model, config.alignment, 1024, torch.device("cpu"))
    links = aligner.links([AlignedPair.of(*pair, None, bos=False) for pair in ids])
    generator = random.Random(1)
    kept, exact, hits, found_words, right_words, lines = 0, 0, 0, 0, 0, 0
    pages = []
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        count = len(source.split())
        begin = generator.randrange(count)
        wanted = range(begin, min(count, begin + generator.randint(1, 3)))
        page = marked(source, wanted, generator.randrange(count))
        pages.append(page)
        alignment = TextAlignment(
            TextTokens.of(vocabularies.source, ids[row][0], source),
            TextTokens.of(vocabularies.target, ids[row][1], target),
            tuple(sorted(links[row])),
        )
        found = put(page, target, alignment)
        kept += is_kept(found)
        right = {j for i, j in gold[row].sure if i in wanted}
        if not right or max(right) - min(right) >= len(right):
            continue
        before, _, rest = found.replace("<img>", "").partition("<b>")
        first = len(before.split()) - (bool(before) and not before[-1].isspace())
        bold = set(range(first, first + len(rest.partition("</b>")[0].split())))
        lines += 1
        exact += bold == right
        hits += len(bold & right)
        found_words += len(bold)
        right_words += len(right)
    translated = deepwire.load(given.model, settings={"beam": 1, "alignment": chosen}).aligning()
    best = [one.candidates[0] for one in translated.translations(sources)]
    again = [
        put(page, each.text, each.alignment)
        for page, each in zip(pages, best, strict=True)
        if each.alignment is not None
    ]
    print(
        json.dumps(
            {
                "attention": [aligner.layer + 1, config.alignment.head, config.alignment.step],
                "lines": len(sources),
                "kept in references": kept / len(sources),
                "kept in translations": sum(map(is_kept, again)) / len(again),
                "lines with known words": lines,
                "exactly right": exact / lines,
                "precision": hits / found_words,
                "recall": hits / right_words,
            }
        )
    )


if __name__ == "__main__":
    main()
