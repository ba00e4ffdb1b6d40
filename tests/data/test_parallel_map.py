from __future__ import annotations

import functools
import multiprocessing
import operator
import os
from collections.abc import Iterator
from itertools import islice

import pytest

from deepwire.data import parallel_map
from deepwire.data.parallel_map import AHEAD, ordered_map
from deepwire.errors import DataError, ResourceError


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_map, "processes", lambda: 2)


@pytest.mark.parametrize("serial", [0, 100])
@pytest.mark.usefixtures("two")
def test_results_and_errors_come_in_order_and_few_items_wait(serial: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(1, 40):
            taken.append(item)
            yield item
        raise DataError("the file ends too early")

    results, found = (
        ordered_map(functools.partial, (operator.floordiv, 1000), items(), serial=serial),
        list[int](),
    )
    for result in islice(results, 39):
        found.append(result)
        assert len(taken) - len(found) <= 2 * AHEAD
    assert found == [1000 // item for item in range(1, 40)]
    with pytest.raises(DataError, match="the file ends too early"):
        next(results)
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("two")
def test_an_error_in_a_process_comes_after_all_results_before_it() -> None:
    results = ordered_map(functools.partial, (operator.floordiv, 6), [1, 2, 0, 3, 0], serial=0)
    assert [next(results), next(results)] == [6, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("two")
def test_a_process_that_dies_is_one_error() -> None:
    with pytest.raises(ResourceError, match="a process that helps to read and segment the text died"):
        list(ordered_map(functools.partial, (os._exit,), [1, 1, 1], serial=0))
    assert multiprocessing.active_children() == []
