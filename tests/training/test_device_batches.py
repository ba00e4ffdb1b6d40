from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from deepwire.training.device import prefetched


def alive() -> int:
    return sum(thread.name.startswith("prefetch") for thread in threading.enumerate())


def test_items_are_made_ahead_but_no_more_than_asked() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    with closing(prefetched(numbers(), depth=2)) as items:
        assert next(items) == 0
        deadline = time.monotonic() + 60
        while len(made) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert made == [0, 1, 2]  # one taken, two made ahead


def test_an_error_comes_after_the_items_before_it() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("three")

    with closing(prefetched(numbers())) as items:
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(KeyError, match="three"):
            next(items)
    assert alive() == 0


def test_leaving_early_ends_the_thread() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 1

    with closing(prefetched(endless())) as items:
        assert next(items) == 1
    assert alive() == 0
