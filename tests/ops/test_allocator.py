from __future__ import annotations

import pytest

from deepwire.ops import allocator
from deepwire.ops.allocator import Surplus

MIB = 1 << 20


def test_a_surplus_is_given_back_and_no_more_often_than_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    now, given = [100 * MIB], []

    def give() -> None:
        given.append(now[0] // MIB)
        now[0] -= 60 * MIB

    monkeypatch.setattr(allocator, "resident_memory", lambda: now[0])
    monkeypatch.setattr(allocator, "give_memory_back", give)
    surplus = Surplus(50 * MIB)
    for megabytes in (100, 150, 151, 120, 141, 90, 141):
        now[0] = megabytes * MIB
        surplus.check()
    # 151 is more than 100 + 50, and leaves 91; then 90 is the least, and 141 more than 90 + 50.
    assert given == [151, 141]
