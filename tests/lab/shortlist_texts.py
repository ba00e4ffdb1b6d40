"""Prepared text of a few subwords, for tests of shortlists and of how they are learned."""

from __future__ import annotations

import numpy as np

from deepwire.data.batches.token_store import StoreWriter, TokenBlock, TokenStore

SIZE = 30


def silent(*_: object) -> None: ...


def store_of(folder, pairs, directions=None):
    with StoreWriter(folder, SIZE, SIZE, directions=directions is not None) as writer:
        for number, (source, target) in enumerate(pairs):
            blocks = [TokenBlock.of([ids], [""]) for ids in (source, target)]
            writer.add(blocks[0], blocks[1], 0 if directions is None else directions[number])
        writer.finish()
    return TokenStore(folder)


def random_pairs(count, seed=0, longest=9):
    draw = np.random.default_rng(seed)
    return [[draw.integers(4, SIZE, draw.integers(1, longest)).tolist() for _ in "st"] for _ in range(count)]
