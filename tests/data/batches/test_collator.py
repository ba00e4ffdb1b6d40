"""An update's batches in shares of equal size."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepwire.data.batches.batching import BatchSettings, StreamPosition, Update, UpdateStream
from deepwire.data.batches.collator import BatchPiece, partition_batches
from deepwire.data.batches.token_store import StoreWriter, TokenBlock, TokenStore

BATCHES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=12)


def test_many_rows_are_cut_in_multiples_of_eight() -> None:
    assert partition_batches([(100, 8)], 2) == [[BatchPiece(0, 0, 48)], [BatchPiece(0, 48, 100)]]
    assert partition_batches([(104, 8)], 3) == [
        [BatchPiece(0, 0, 32)],
        [BatchPiece(0, 32, 72)],
        [BatchPiece(0, 72, 104)],
    ]


@given(BATCHES, st.integers(1, 9))
def test_shares_are_equal_but_for_a_row_and_the_tolerance(
    batches: list[tuple[int, int]], processes: int
) -> None:
    fair = sum(rows * width for rows, width in batches) / processes
    for share in partition_batches(batches, processes):
        size = sum((piece.stop - piece.start) * batches[piece.batch][1] for piece in share)
        assert abs(size - fair) <= fair / 8 + max(width for _, width in batches)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    generator = np.random.default_rng(1)
    rows = [generator.integers(4, 50, size).tolist() for size in generator.integers(1, 20, 500)]
    folder: Path = tmp_path_factory.mktemp("dealing") / "store"
    with StoreWriter(folder, 50, 50) as writer:
        writer.add(TokenBlock.of(rows, ["x"] * len(rows)), TokenBlock.of(rows[::-1], ["x"] * len(rows)))
        writer.finish()
    return TokenStore(folder)


def updates(store: TokenStore, process: int, processes: int) -> list[Update]:
    stream = UpdateStream(store, BatchSettings(600, 250), seed=1, share=(process, processes))
    return [update for update, _ in islice(stream.updates(StreamPosition()), 20)]


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_processes_share_the_same_updates(store: TokenStore, processes: int) -> None:
    alone = updates(store, 0, 1)
    shares = [updates(store, process, processes) for process in range(processes)]
    for whole, *parts in zip(alone, *shares, strict=True):
        tokens = sum(batch.target_tokens for part in parts for batch in part.batches)
        assert tokens == whole.target_tokens
        lines = np.concatenate([batch.lines for part in parts for batch in part.batches])
        assert np.array_equal(lines, np.concatenate([batch.lines for batch in whole.batches]))
        for part in parts:
            assert (part.number, part.epoch) == (whole.number, whole.epoch)
            assert part.target_tokens == whole.target_tokens
            assert np.array_equal(part.lines, whole.lines)
