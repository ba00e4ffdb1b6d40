from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deepwire.decoding.batching import batches_by_length


@given(lengths=st.lists(st.integers(1, 60), max_size=80), tokens=st.integers(1, 300))
def test_every_sentence_once_and_no_batch_too_large(lengths, tokens):
    batches = batches_by_length(lengths, tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= tokens


def test_batches_hold_neighbours_in_length():
    lengths = [3, 50, 4, 49, 3, 51]
    assert batches_by_length(lengths, 160) == [[5, 1, 3], [2, 0, 4]]
