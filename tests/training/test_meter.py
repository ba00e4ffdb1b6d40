"""The expected time to the end, and threads that wait for cores."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from forked import fork

from deepwire.training.progress import CoreTime, RemainingTime, ThreadContention


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_slow_first_update_is_not_expected_again() -> None:
    clock = Clock()
    pace = RemainingTime(clock)
    assert pace.seconds_left(0.0) is None
    for update in range(1, 101):
        clock.now += 60.0 if update == 1 else 0.5
        pace.passed(update / 1000)
        if update == 1:
            assert pace.seconds_left(update / 1000) is None
        else:
            assert pace.seconds_left(update / 1000) == pytest.approx((1000 - update) * 0.5)


def test_slow_updates_are_forgotten_and_validation_is_counted() -> None:
    """Ten slow ones at the beginning; a validation of 20 s after every 100 updates of 1 s."""
    clock = Clock()
    pace = RemainingTime(clock)
    for update in range(1, 1001):
        clock.now += 30.0 if update <= 10 else 1.0
        pace.passed(update / 2000)
        if update == 64:
            assert pace.seconds_left(update / 2000) == pytest.approx(1936)
        if update % 100 == 0:
            clock.now += 20.0
    assert pace.seconds_left(0.5) == pytest.approx(1200, rel=0.02)


def test_a_run_that_goes_on_expects_what_it_sees() -> None:
    clock = Clock()
    pace = RemainingTime(clock)
    for update in (901, 902, 903, 904):
        clock.now += 2.0
        pace.passed(update / 1000)
    assert pace.seconds_left(0.904) == pytest.approx(192)
    assert pace.seconds_left(1.0) == 0.0


def crowded(shares: list[tuple[float, float]], threads: int = 2) -> list[str | None]:
    """What is said when threads have had and waited for so many seconds in turn."""
    had = waited = 0.0
    times = [CoreTime(0.0, 0.0)]
    for more, wait in shares:
        had, waited = had + more, waited + wait
        times.append(CoreTime(had, waited))
    given = iter(times)
    crowding = ThreadContention(threads, core_time=lambda: next(given))
    return [crowding.warning() for _ in shares]


def test_waiting_threads_are_noticed_once() -> None:
    assert crowded([(10, 0.3), (10, 0.5)]) == [None, None]
    first, second, third, fourth = crowded([(10, 0.3), (1, 1), (4, 2), (4, 4)])
    assert (first, second, fourth) == (None, None, None)  # too little to judge by, and it was said
    assert third is not None
    assert "2 threads of this run wait for a free core 38% of their time" in third
    assert "training.threads=1" in third
    assert crowded([(10, 10)], threads=1) == [None]


def test_where_the_system_does_not_tell_nothing_is_said() -> None:
    assert ThreadContention(2, core_time=lambda: None).warning() is None


@pytest.fixture
def busy_core() -> Iterator[None]:
    """All that this process does is done on one core, which another process keeps busy."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})

    def work() -> int:
        while True:
            pass

    child = fork(work)
    yield
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.sched_setaffinity(0, before)


@pytest.mark.skipif(CoreTime.now() is None, reason="the system does not tell how long threads wait")
@pytest.mark.usefixtures("busy_core")
def test_a_core_that_is_shared_is_seen() -> None:
    crowding = ThreadContention(2, enough=0.2)
    deadline = time.monotonic() + 60
    while (note := crowding.warning()) is None:
        assert time.monotonic() < deadline
        sum(range(10_000))
    assert "wait for a free core" in note
