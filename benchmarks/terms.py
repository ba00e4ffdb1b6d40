"""How many terms translations have, and what that costs, with and without `--terms`.

    python benchmarks/terms.py MODEL TRAIN_SOURCE TRAIN_TARGET TEST_SOURCE TEST_TARGET [--lines 1000]
        [--terms FILE]

Learns word pairs from the training text (Dice coefficient), keeps as terms those that a test line and its
reference have, and prints as JSON for the free and the constrained search: terms, terms hit, seconds of
processor time, and BLEU. A term counts in a line only if the reference has it, so that it is right there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import sacrebleu

import deepwire
from deepwire.decoding.terminology import Terminology

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
    options = parser.parse_args()
    lexicon = learned(list(zip(read(options.train_source), read(options.train_target), strict=True)))
    lines = read(options.test_source)[: options.lines]
    references = read(options.test_target)[: options.lines]
    with tempfile.TemporaryDirectory() as folder:
        path = options.terms or Path(folder) / "terms.tsv"
        if options.terms is None:
            path.write_text("".join(f"{source}\t{target}\n" for source, target in lexicon.items()))
        terminology = Terminology.read(path)
        right = [
            [term for term in terminology.find(line) if term.count(reference)]
            for line, reference in zip(lines, references, strict=True)
        ]
        used = sorted({term for terms in right for term in terms})
        path = Path(folder) / "used.tsv"
        path.write_text("".join(f"{term.source}\t{'|'.join(term.targets)}\n" for term in used))
        for name, terms in (("free", None), ("terms", path)):
            model = deepwire.load(options.model, "cpu", terms=terms)
            model.translate(lines[:20])
            begun = time.process_time()
            translations = model.translate(lines)
            seconds = time.process_time() - begun
            hits = [
                term.count(text) > 0
                for text, wanted in zip(translations, right, strict=True)
                for term in wanted
            ]
            bleu = sacrebleu.corpus_bleu(translations, [references]).score
            record = {"search": name, "terms": len(hits), "hit": sum(hits), "seconds": seconds, "bleu": bleu}
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
