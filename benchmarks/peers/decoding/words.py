"""Text that nobody wrote: words drawn at random, every one a subword to all toolkits."""

from __future__ import annotations

import random
from pathlib import Path

from peers.base import Task

# Tokens that every toolkit adds to its vocabulary by itself.
_SPECIAL = 4
# Fewer are not enough for a batch of every toolkit.
_FEWEST_LINES = 100


def vocabulary(task: Task) -> list[str]:
    return [f"w{number}" for number in range(task.vocabulary - _SPECIAL)]


def write_corpus(task: Task, length: int, folder: Path) -> Path:
    """Training text in which every word occurs, in sentences of `length` words; both sides are the same."""
    words = vocabulary(task)
    lines = [words[start : start + length] for start in range(0, len(words), length)]
    lines *= -(-_FEWEST_LINES // len(lines))
    for language in (task.source, task.target):
        (folder / f"train.{language}").write_text("".join(f"{' '.join(line)}\n" for line in lines))
    return folder / "train"


def write_sentences(task: Task, count: int, length: int, path: Path) -> None:
    """So many sentences of `length` words; the first ones are always the same."""
    generator, words = random.Random(1), vocabulary(task)
    lines = (" ".join(generator.choices(words, k=length)) for _ in range(count))
    path.write_text("".join(f"{line}\n" for line in lines))
