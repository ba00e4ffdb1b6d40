from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from real_text import lines

from deepwire.data.subwords.sampling import NEVER, DropoutMerges, Lattice
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies, Vocabulary
from deepwire.data.vocabulary_config import VocabularyConfig


def learn(kind: str) -> Vocabulary:
    config = TypeAdapter(VocabularyConfig).validate_python({"type": kind, "size": 1500})
    return Vocabularies.learn_from_blocks(
        config, [[Pair(1, line, line, 0) for line in lines("de", 2000)]]
    ).source


@pytest.fixture(scope="module")
def bpe() -> Vocabulary:
    return learn("bpe")


@pytest.fixture(scope="module")
def unigram() -> Vocabulary:
    return learn("unigram")


def test_another_process_draws_the_same(bpe: Vocabulary, unigram: Vocabulary, tmp_path: Path) -> None:
    both, texts = {"bpe": bpe, "unigram": unigram}, lines("de", 20)
    for kind, vocabulary in both.items():
        Vocabularies(vocabulary, vocabulary, True, kind).save(tmp_path / kind)
    code = (
        "import sys, pathlib, json\n"
        "from deepwire.data.vocabulary import Vocabularies\n"
        "found = [Vocabularies.load(pathlib.Path(sys.argv[1]) / kind).source for kind in sys.argv[3:]]\n"
        "print([[v.sample(t, s, 0.2) for s, t in enumerate(json.loads(sys.argv[2]))] for v in found])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), json.dumps(texts), *both]
    out = subprocess.run(command, capture_output=True, check=True, text=True)
    drawn = [[v.sample(t, s, 0.2) for s, t in enumerate(texts)] for v in both.values()]
    assert json.loads(out.stdout) == drawn


def brute_force_dropout(
    word: str, ranks: dict[tuple[str, str], int], p: float
) -> dict[tuple[str, ...], float]:
    """Probability of each outcome: every possible merge is dropped with p, the best left one is done."""

    def follow(symbols: tuple[str, ...]) -> dict[tuple[str, ...], float]:
        places = [i for i in range(len(symbols) - 1) if symbols[i : i + 2] in ranks]
        outcome: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for dropped in product([False, True], repeat=len(places)):
            chance = math.prod(p if gone else 1 - p for gone in dropped)
            left = [place for place, gone in zip(places, dropped, strict=True) if not gone]
            if not left:
                outcome[symbols] += chance
                continue
            at = min(left, key=lambda place: (ranks[symbols[place : place + 2]], place))
            merged = (*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :])
            for result, share in follow(merged).items():
                outcome[result] += chance * share
        return outcome

    return follow(tuple(word))


def test_dropout_follows_the_published_algorithm() -> None:
    ranks = {("a", "b"): 0, ("b", "c"): 1, ("ab", "c"): 2, ("c", "d"): 3, ("abc", "d"): 4, ("ab", "cd"): 5}
    merges = DropoutMerges(list, lambda left, right: ranks.get((left, right), NEVER))
    generator, draws = random.Random(5), 20_000
    found = Counter(tuple(merges.cut("abcd", 0.3, generator)) for _ in range(draws))
    expected = brute_force_dropout("abcd", ranks, 0.3)
    assert set(found) == set(expected)
    for outcome, chance in expected.items():
        assert abs(found[outcome] / draws - chance) < 4 * math.sqrt(chance * (1 - chance) / draws)


def test_unigram_draws_are_proportional_to_their_probability() -> None:
    scores = {"a": -1.0, "b": -1.5, "ab": -2.0, "ba": -2.2, "aba": -3.0}
    lattice = Lattice(scores, -20.0, 3, "abab", 0.7)
    generator, draws = random.Random(1), 20_000
    found = Counter(tuple(lattice.draw(generator)) for _ in range(draws))

    def ways(text: str) -> list[tuple[str, ...]]:
        if not text:
            return [()]
        return [(p, *rest) for p in scores if text.startswith(p) for rest in ways(text[len(p) :])]

    weights = {way: math.exp(0.7 * sum(scores[piece] for piece in way)) for way in ways("abab")}
    total = sum(weights.values())
    assert set(found) <= set(weights)
    for way, weight in weights.items():
        chance = weight / total
        assert abs(found[way] / draws - chance) < 4 * math.sqrt(chance * (1 - chance) / draws)
