from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deepwire.decoding.shrinking import parting


def flags(size: int, ended: int) -> list[bool]:
    return [True] * ended + [False] * (size - ended)


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_only_ended_sentences_leave_and_all_others_stay_in_order(ended: list[bool]) -> None:
    leaving, staying = parting(ended)
    assert sorted([*leaving, *staying]) == list(range(len(ended)))
    assert staying == sorted(staying)
    assert all(ended[place] for place in leaving)


def test_few_leave_together_with_others_later() -> None:
    assert parting(flags(64, 7))[0] == []
    assert parting(flags(64, 8))[0] == list(range(8))
    assert parting(flags(3, 1))[0] == [0]
    assert parting(flags(0, 0)) == ([], [])


def test_batches_come_in_few_sizes() -> None:
    sizes = {len(parting(flags(64, ended))[1]) for ended in range(64)}
    assert sizes == {64, 56, 48, 40, 32, 28, 24, 20, 16, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1}
