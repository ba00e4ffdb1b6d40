"""How many target subwords a shortlist has, and how much of the reference is made of them.

    python benchmarks/shortlist_size.py [--vocabulary-size 20000] [--best 100 50] [--first 1000] ...

Learns a joint BPE vocabulary and a shortlist from SOURCE and TARGET (Multi30k of the examples), and looks at
the shortlists of TEXT in batches of 1 and 64 sentences, sorted by length. What the reference has and the
shortlist has not, no translation with it can have. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig
from deepwire.decoding.model_inputs import batches_by_length, pad_batch
from deepwire.decoding.shortlist import LanguageRows, ShortlistTable, batch_shortlist
from deepwire.experiments.shortlist_learning.shortlist_learning import (
    LearningSettings,
    learn_shortlist,
    tokenized_store,
)

TEXT = Path(__file__).resolve().parent.parent / "examples" / "multi30k"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, default=TEXT / "train.de.gz")
    parser.add_argument("--target", type=Path, default=TEXT / "train.en.gz")
    parser.add_argument("--text", type=Path, default=TEXT / "test_2016_flickr.de.gz")
    parser.add_argument("--reference", type=Path, default=TEXT / "test_2016_flickr.en.gz")
    parser.add_argument("--vocabulary-size", type=int, default=20_000)
    parser.add_argument("--best", type=int, nargs="+", default=[100, 50])
    parser.add_argument("--first", type=int, default=1000)
    options = parser.parse_args()
    pairs = list(zip(lines(options.source), lines(options.target), strict=True))
    words = Vocabularies.learn(
        BpeConfig(size=options.vocabulary_size, joint=True),
        [Pair(number, *pair, 0) for number, pair in enumerate(pairs, 1)],
    )
    source = words.source.encode_lines(list(lines(options.text)))
    reference = words.target.encode_lines(list(lines(options.reference)))
    print(
        "| pairs | vocabulary | best | first | sentences | subwords | share of the reference | CPU seconds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for best in options.best:
        begun = time.process_time()
        with tokenized_store(pairs, words) as store:
            settings = LearningSettings(best=best, first=options.first)
            table = learn_shortlist(store, words, {"": None}, settings, lambda *_: None).table("")
        seconds = time.process_time() - begun
        for batch in (1, 64):
            size, share = looked_at(table, source, reference, batch)
            print(
                f"| {len(pairs)} | {words.target.size} | {best} | {options.first} | {batch} | {size:.0f} "
                f"| {share:.1%} | {seconds:.0f} |",
                flush=True,
            )


def lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open() as file:
        for line in file:
            yield line.rstrip("\n")


def looked_at(
    table: ShortlistTable, source: Sequence[list[int]], reference: Sequence[list[int]], batch: int
) -> tuple[float, float]:
    """Mean size of the shortlists, and the share of the reference that they have."""
    order = [row for group in batches_by_length([len(ids) for ids in source], 1) for row in group]
    sizes, there, all_ = [], 0, 0
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        read = pad_batch([source[row] for row in rows], torch.device("cpu"))
        tokens = batch_shortlist([LanguageRows(0, table, read)]).tokens
        wanted = torch.tensor([number for row in rows for number in reference[row]])
        sizes.append(len(tokens))
        there += int(torch.isin(wanted, tokens).sum())
        all_ += len(wanted)
    return sum(sizes) / len(sizes), there / all_


if __name__ == "__main__":
    main()
