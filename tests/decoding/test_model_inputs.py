"""Batches of sentences: made by length, compacted, decoded several at a time."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.decoding.model_inputs import (
    Cancelled,
    batch_compaction,
    batches_by_length,
    map_batches,
)

CPU = torch.device("cpu")


@given(lengths=st.lists(st.integers(1, 60), max_size=80), tokens=st.integers(1, 300))
def test_every_sentence_once_and_no_batch_too_large(lengths, tokens):
    batches = batches_by_length(lengths, tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= tokens


def flags(size: int, ended: int) -> list[bool]:
    return [True] * ended + [False] * (size - ended)


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_only_ended_sentences_leave_and_all_others_stay_in_order(ended: list[bool]) -> None:
    leaving, staying = batch_compaction(ended)
    assert sorted([*leaving, *staying]) == list(range(len(ended)))
    assert staying == sorted(staying)
    assert all(ended[place] for place in leaving)


def test_batches_come_in_few_sizes() -> None:
    sizes = {len(batch_compaction(flags(64, ended))[1]) for ended in range(64)}
    assert sizes == {64, 56, 48, 40, 32, 28, 24, 20, 16, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1}


@pytest.fixture(autouse=True)
def _threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), max_size=12), threads=st.integers(1, 5))
def test_results_come_in_the_order_of_the_rows(lengths, threads):
    torch.set_num_threads(threads)
    batches = batches_by_length(lengths, 9)
    results = map_batches(lambda rows, _: [lengths[row] * 2 for row in rows], batches, CPU)
    assert results == [length * 2 for length in lengths]
    assert torch.get_num_threads() == threads


def test_batches_share_the_threads_and_run_at_the_same_time():
    torch.set_num_threads(5)
    together = threading.Barrier(2, timeout=60)

    def work(rows, _stop):
        together.wait()
        return [(row, torch.get_num_threads()) for row in rows]

    assert map_batches(work, [[1], [0]], CPU) == [(0, 2), (1, 2)]
    beginning = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    seen: list[int] = []
    beginning.start()
    beginning.join()
    assert seen == [5]


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_an_error_calls_the_others_off(error):
    torch.set_num_threads(2)
    begun = []

    def work(rows, stop):
        begun.extend(rows)
        if rows == [0]:
            raise error
        if not stop.wait(60):
            pytest.fail("nobody stopped this batch")
        raise Cancelled

    with pytest.raises(type(error)):
        map_batches(work, [[row] for row in range(50)], CPU)
    assert len(begun) < 50
    assert torch.get_num_threads() == 2
