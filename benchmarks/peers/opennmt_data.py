"""Corpus and vocabulary for OpenNMT-py and for eole, its successor: the same keys in the settings of both."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from peers.base import Task


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
