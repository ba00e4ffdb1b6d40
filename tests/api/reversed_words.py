"""A corpus of words and their reverse, and the settings of a small model for it."""

from __future__ import annotations

import random
from pathlib import Path

SETTINGS: dict[str, object] = {
    "seed": 3,
    "data": {
        "source": "src",
        "target": "trg",
        "vocabulary": {"type": "words"},
    },
    "model": {
        "d_model": 16,
        "heads": 2,
        "feed_forward": 32,
        "encoder": {"layers": 1, "connection": "rezero"},
        "decoder": {"layers": 1},
    },
    "training": {
        "max_updates": 20,
        "batch_tokens": 200,
        "micro_batch_tokens": 200,
        "log_every": 5,
        "schedule": {"peak": 0.01, "warmup": 5},
        "validation": {"every": 10},
        "device": "cpu",
        "precision": "fp32",
    },
}


def write_corpus(folder: Path) -> None:
    """Words and their reverse, as train, valid and test."""
    generator = random.Random(1)
    for name, count in (("train", 200), ("valid", 10), ("test", 12)):
        lines = [generator.choices("abcdefgh", k=generator.randint(2, 8)) for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(" ".join(words) + "\n" for words in lines))
        (folder / f"{name}.trg").write_text("".join(" ".join(words[::-1]) + "\n" for words in lines))
