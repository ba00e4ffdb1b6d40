from __future__ import annotations

import random
from collections.abc import Callable

import pytest

NOUNS = ("man", "woman", "dog", "child", "café-owner", "bird", "well-known singer", "Straße", "T-shirt")
VERBS = ("sees", "holds", "paints", "follows", "likes", "is near to")

Damage = Callable[[float, int], list[str]]


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
