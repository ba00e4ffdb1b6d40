from __future__ import annotations

from itertools import compress
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepwire.data.text.pairs import Texts

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n")))


@given(LINES, st.randoms())
def test_joined_lines_come_apart_again(lines: list[str], random: Random) -> None:
    texts, chosen = Texts.of_strings(lines), [random.random() < 0.5 for _ in lines]
    assert texts.strings() == lines
    assert texts.lines() == [line.encode() for line in lines]
    assert texts.sizes.tolist() == [len(line.encode()) for line in lines]
    assert texts.take(np.array(chosen, np.bool_)).strings() == list(compress(lines, chosen))


@given(LINES, LINES)
def test_hashes_tell_lines_apart_wherever_they_stand(lines: list[str], others: list[str]) -> None:
    every = [*others, *lines, *others]
    hashes = Texts.of_strings(every).hashes().tolist()
    assert hashes[len(others) : len(others) + len(lines)] == Texts.of_strings(lines).hashes().tolist()
    assert len(set(hashes)) == len(set(every))


def test_hashes_tell_alike_lines_apart() -> None:
    lines = [f"{one:08d}{gap}{two:08d}" for one in range(60) for gap in ("", "x") for two in range(60)]
    lines += ["a" * size for size in range(300)] + ["ab" * size + "ba" for size in range(300)]
    assert len(np.unique(Texts.of_strings(lines).hashes())) == len(set(lines))
