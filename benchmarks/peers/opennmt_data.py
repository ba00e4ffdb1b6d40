"""Corpus and vocabulary for OpenNMT-py and for eole, its successor: the same keys in the settings of both."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from peers.base import Task

# Examples that each of the two loading processes gathers before it sorts them by length. Their default of
# 262,144 is for large corpora: of 29,000 pairs both would read each nine times while training has begun, and
# hold all of that in memory. This is about what a process reads of such a corpus, and fifty batches.
BUCKET = 16_384


def data_settings(folder: Path, task: Task, corpus: Path) -> dict[str, object]:
    """Write the joint vocabulary of a corpus into the folder; gives what the settings say of both."""
    words: Counter[str] = Counter()
    sides = [f"{corpus}.{language}" for language in (task.source, task.target)]
    for side in sides:
        words.update(Path(side).read_text().split())
    vocabulary = folder / "vocabulary.txt"
    vocabulary.write_text("".join(f"{word}\t{count}\n" for word, count in words.most_common()))
    return {
        "data": {"corpus_1": dict(zip(("path_src", "path_tgt"), sides, strict=True))},
        "src_vocab": str(vocabulary),
        "tgt_vocab": str(vocabulary),
        "share_vocab": True,
    }
