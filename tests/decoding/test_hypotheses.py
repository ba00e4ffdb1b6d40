from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.decoding.search import chunked_top_k


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 5), columns=st.integers(1, 5000), k=st.integers(1, 12), seed=st.integers(0, 99))
def test_the_same_as_topk(rows, columns, k, seed):
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    k = min(k, columns)
    best, index = chunked_top_k(values, k)
    assert torch.equal(best, values.topk(k, dim=1).values)
    assert torch.equal(values.gather(1, index), best)
    assert all(len(set(row)) == k for row in index.tolist())


def test_rows_that_are_mostly_impossible():
    values = torch.full((2, 4099), -torch.inf)
    values[0, 4098], values[1, 64] = -1.0, -2.0
    best, index = chunked_top_k(values, 3)
    assert index[:, 0].tolist() == [4098, 64]
    assert best[:, 1:].eq(-torch.inf).all()
    assert all(len(set(row)) == 3 for row in index.tolist())
