from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.decoding.translation_io import Request
from deepwire.serve.batcher import FairQueue, Job
from deepwire.serve.model_pool import Search

NO_MODEL: Any = None
GREEDY, BEAM = Search(NO_MODEL, 1, 1), Search(NO_MODEL, 4, 1)


def job(client: str, *lengths: int, search: Search = GREEDY) -> Job:
    return Job([Request("") for _ in lengths], lengths, search, client)


def test_clients_get_equal_shares_whatever_they_have_sent() -> None:
    queue = FairQueue()
    for client, length in (("long", 100), ("short", 10), ("short", 10), ("short", 10)):
        queue.add(job(client, *[length] * 300))
    given_to = {"long": 0, "short": 0}
    for _ in range(50):
        for waiting in queue.take(200):
            given_to[waiting.job.client] += waiting.job.lengths[waiting.place]
    assert abs(given_to["long"] - given_to["short"]) <= 200


def test_a_client_that_comes_again_and_again_pays_for_what_it_had() -> None:
    """Whose queue is empty between its requests has no more than who keeps one full."""
    queue = FairQueue()
    queue.add(job("steady", *[10] * 1000))
    had = {"steady": 0, "again": 0}
    for _ in range(100):
        if not queue.waiting("again"):
            queue.add(job("again", 40))
        for waiting in queue.take(10):
            had[waiting.job.client] += waiting.job.lengths[waiting.place]
    assert abs(had["steady"] - had["again"]) <= 80


def test_requests_of_a_client_take_turns_and_none_waits_for_ever() -> None:
    """Many clients behind a proxy are one to us: a large request among many small ones still ends."""
    queue, large = FairQueue(), job("proxy", *[10] * 50)
    queue.add(large)
    left = 50
    for _ in range(50):
        queue.add(job("proxy", 10))
        first, second = queue.take(20)
        assert first.job is not second.job
        left -= sum(waiting.job is large for waiting in (first, second))
    assert left == 0


LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=6)
WHAT = st.sampled_from(["add", "add", "take", "drop"])
STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), LENGTHS, st.sampled_from([GREEDY, BEAM]), WHAT), max_size=30
)


@settings(max_examples=80, deadline=None)
@given(STEPS, st.randoms(use_true_random=False))
def test_every_text_is_taken_once_or_dropped(steps: list, draw: random.Random) -> None:
    queue, jobs, seen = FairQueue(), [], []
    dropped: set[Job] = set()
    for client, lengths, search, what in steps:
        if what == "add":
            jobs.append(job(client, *lengths, search=search))
            queue.add(jobs[-1])
        elif what == "take":
            seen += queue.take(50)
        elif jobs:
            one = draw.choice(jobs)
            queue.drop(one)
            dropped.add(one)
        kept = [one for one in jobs if one not in dropped]
        waiting = sum(len(one.lengths) for one in kept) - sum(turn.job not in dropped for turn in seen)
        assert len(queue) == waiting
        assert sum(queue.waiting(name) for name in "abc") == waiting
    while len(queue):
        seen += queue.take(50)
    assert queue.cost == 0
    places = [(jobs.index(turn.job), turn.place) for turn in seen]
    assert len(places) == len(set(places))
    expected = {
        (jobs.index(one), place) for one in jobs if one not in dropped for place in range(len(one.lengths))
    }
    assert expected <= set(places)
    assert not queue._clients
