"""Whether inline markup is kept, and at the right words, when alignments of a model put it into translations.

    python benchmarks/markup.py MODEL SOURCE REFERENCE GOLD [--layer 2] [--head 1] [--step reads]

In each line one to three words next to each other are bold, and an image is somewhere. They are put into
the reference by the alignment of the model, and compared with the words that the gold alignment
(`benchmarks/word_alignments.py`) surely links to them, where these stand together. Prints as JSON: the
share of lines that keep all tags, in references and in translations; the share of lines whose bold words
are exactly right; precision and recall of bold words.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import deepwire
from deepwire.analysis.subject.model_and_text import open_model
from deepwire.data.subwords.text_tokens import TextTokens
from deepwire.data.text.files import read_lines
from deepwire.data.text.sentences import SentenceSplitter
from deepwire.data.vocabulary import Vocabularies
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


def is_kept(page: str) -> bool:
    """Whether all tags are there, well nested."""
    return re.sub("[^<>]*(<[^<>]*>)[^<>]*", r"\1", page) in (
        "<b></b><img>",
        "<img><b></b>",
        "<b><img></b>",
    )


def bold_words(page: str) -> set[int]:
    """The numbers of the bold words of a page, from 0."""
    before, _, rest = page.replace("<img>", "").partition("<b>")
    first = len(before.split()) - (bool(before) and not before[-1].isspace())
    return set(range(first, first + len(rest.partition("</b>")[0].split())))


@dataclass
class Counts:
    """What was counted over the lines of the references."""

    kept: int = 0
    lines: int = 0
    """Lines in which the words that ought to be bold are known, and stand together."""
    exact: int = 0
    hits: int = 0
    bold: int = 0
    right: int = 0

    def add(self, page: str, right: set[int]) -> None:
        """Count a reference with markup, whose words `right` ought to be bold."""
        self.kept += is_kept(page)
        if not right or max(right) - min(right) >= len(right):
            return
        bold = bold_words(page)
        self.lines += 1
        self.exact += bold == right
        self.hits += len(bold & right)
        self.bold += len(bold)
        self.right += len(right)


def marked_references(
    aligner: AttentionAligner, vocabularies: Vocabularies, texts: Sequence[Sequence[str]], gold: Path
) -> tuple[Counts, list[str]]:
    """Counts of the references with the markup of the sources, and these sources."""
    lines = list(zip(*texts, strict=True))
    ids = [(vocabularies.source.encode(s), vocabularies.target.encode(t)) for s, t in lines]
    links = aligner.links([AlignedPair.of(*pair, None, bos=False) for pair in ids])
    generator = random.Random(1)
    counts, pages = Counts(), []
    known = read_gold(gold, [(len(s.split()), len(t.split())) for s, t in lines])
    for (source, target), pair, link, words in zip(lines, ids, links, known, strict=True):
        count = len(source.split())
        begin = generator.randrange(count)
        wanted = range(begin, min(count, begin + generator.randint(1, 3)))
        pages.append(marked(source, wanted, generator.randrange(count)))
        alignment = TextAlignment(
            TextTokens.of(vocabularies.source, pair[0], source),
            TextTokens.of(vocabularies.target, pair[1], target),
            tuple(sorted(link)),
        )
        counts.add(put(pages[-1], target, alignment), {j for i, j in words.sure if i in wanted})
    return counts, pages


def share_kept(
    model: str, chosen: Mapping[str, int | str], sources: Sequence[str], pages: Sequence[str]
) -> float:
    """The share of the model's own translations that keep all tags."""
    translator = deepwire.load(model, settings={"beam": 1, "alignment": chosen}).aligning()
    best = [translation.candidates[0] for translation in translator.translations(sources)]
    kept = [
        is_kept(put(page, candidate.text, candidate.alignment))
        for page, candidate in zip(pages, best, strict=True)
        if candidate.alignment is not None
    ]
    return sum(kept) / len(kept)


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
    texts = [[" ".join(str(line).split()) for line in read_lines(path)] for path in given.files[:2]]
    loaded = open_model(given.model).loaded
    config = with_settings(stored_config(loaded), {"alignment": chosen})
    aligner = AttentionAligner(loaded.model, config.alignment, 1024, torch.device("cpu"))
    counts, pages = marked_references(aligner, loaded.vocabularies, texts, given.files[2])
    figures = {
        "attention": [aligner.layer + 1, config.alignment.head, config.alignment.step],
        "lines": len(pages),
        "kept in references": counts.kept / len(pages),
        "kept in translations": share_kept(given.model, chosen, texts[0], pages),
        "lines with known words": counts.lines,
        "exactly right": counts.exact / counts.lines,
        "precision": counts.hits / counts.bold,
        "recall": counts.hits / counts.right,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
