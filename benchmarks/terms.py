"""How many terms translations have, and what that costs, with and without `--terms`.

    python benchmarks/terms.py MODEL TRAIN_SOURCE TRAIN_TARGET TEST_SOURCE TEST_TARGET [--lines 1000]
        [--terms FILE] [--share 0.5] [--rounds 5] [--search beam --search prefer]

Learns word pairs from the training text (Dice coefficient), keeps as terms those that a test line and its
reference have, and prints as JSON for the free search and each `decoding.term_search`: terms, terms hit,
lines that lack one, BLEU, and seconds of processor time. The searches take turns; the time is the median of
the rounds, and so is its ratio to the free search of the same round. A term counts in a line only if the
reference has it, so that it is right there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

import sacrebleu

import deepwire
from deepwire.decoding.terms import Terminology

FEWEST, DICE = 20, 0.5


def read(path: Path) -> list[str]:
    """The lines of a file, compressed or not."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def words(line: str) -> set[str]:
    """Words of four letters or more."""
    return set(re.findall(r"[^\W\d_]{4,}", line))


def learned(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The best target word of each source word, where it is good enough."""
    sources, targets, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for source, target in pairs:
        left, right = words(source), words(target)
        sources.update(left)
        targets.update(right)
        both.update((one, other) for one in left for other in right)
    best: dict[str, tuple[float, str]] = {}
    for (one, other), count in both.items():
        if min(sources[one], targets[other]) >= FEWEST:
            dice = 2 * count / (sources[one] + targets[other])
            best[one] = max(best.get(one, (0.0, "")), (dice, other))
    found: dict[str, tuple[str, str]] = {}
    for one, (dice, other) in best.items():
        if dice >= DICE:
            found.setdefault(one.casefold(), (one, other))
    return dict(found.values())


def main() -> None:
    """Learn, translate twice, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    for name in ("train_source", "train_target", "test_source", "test_target"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--terms", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="of the terms that are used")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--search", action="append", choices=["beam", "prefer"])
    options = parser.parse_args()
    lexicon = learned(list(zip(read(options.train_source), read(options.train_target), strict=True)))
    lines = read(options.test_source)[: options.lines]
    references = read(options.test_target)[: options.lines]
    with tempfile.TemporaryDirectory() as folder:
        path = options.terms or Path(folder) / "terms.tsv"
        if options.terms is None:
            path.write_text("".join(f"{source}\t{target}\n" for source, target in lexicon.items()))
        terminology = Terminology.read(path, print)
        right = [
            [term for term in terminology.find(line) if term.count(reference)]
            for line, reference in zip(lines, references, strict=True)
        ]
        used = sorted({term for terms in right for term in terms})
        used = random.Random(1).sample(used, round(options.share * len(used)))
        right = [[term for term in terms if term in used] for terms in right]
        path = Path(folder) / "used.tsv"
        path.write_text("".join(f"{term.source}\t{'|'.join(term.targets)}\n" for term in used))
        searches = {"free": deepwire.load(options.model, "cpu")}
        for name in options.search or ["beam"]:
            searches[name] = deepwire.load(options.model, "cpu", terms=path, settings={"term_search": name})
        seconds: dict[str, list[float]] = {name: [] for name in searches}
        found: dict[str, list[str]] = {}
        for model in searches.values():
            model.translate(lines[:20])
        for _ in range(options.rounds):
            for name, model in searches.items():
                begun = time.process_time()
                found[name] = model.translate(lines)
                seconds[name].append(time.process_time() - begun)
    for name, translations in found.items():
        hits = [
            [term.count(text) > 0 for term in wanted]
            for text, wanted in zip(translations, right, strict=True)
        ]
        ratios = [own / free for own, free in zip(seconds[name], seconds["free"], strict=True)]
        record = {
            "search": name,
            "terms": sum(map(len, hits)),
            "hit": sum(map(sum, hits)),
            "lines": sum(not all(own) for own in hits),
            "bleu": round(sacrebleu.corpus_bleu(translations, [references]).score, 2),
            "words": sum(len(text.split()) for text in translations),
            "seconds": round(median(seconds[name]), 3),
            "ratio": round(median(ratios), 3),
        }
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
