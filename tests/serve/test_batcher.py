from __future__ import annotations

import threading
from typing import Any

import pytest

from deepwire.decoding.translation_io import Candidate, Request, Translation
from deepwire.serve.batcher import Batcher, Job, Metrics, TextFailedError
from deepwire.serve.model_pool import Search
from deepwire.serve.request import Limits, RequestError

SECONDS = 60


class Model:
    """Turns texts round; fails where one says so; notes what it was given together."""

    def __init__(self, room: int = 40) -> None:
        self.room = room
        self.batches: list[tuple[int, list[str]]] = []
        self.free = threading.Event()
        self.free.set()

    def budget(self, search):
        return self.room // search.beam

    def translate(self, requests, lengths, search):
        self.batches.append((search.beam, [request.text for request in requests]))
        assert self.free.wait(SECONDS)
        if any("!" in request.text for request in requests):
            raise ValueError("no")
        assert [len(request.text) for request in requests] == list(lengths)
        return [
            Translation(line, request, (Candidate(request.text[::-1], (), 0.0, 0.0),))
            for line, request in enumerate(requests, 1)
        ]


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def batcher(model):
    found = Batcher(Limits(queue=120), Metrics())
    found.start()
    yield found
    model.free.set()
    found.close(SECONDS)
    assert not found.alive


def job_of(model: Model, *texts: str, beam: int = 1, client: str = "") -> Job:
    lengths = [len(text) for text in texts]
    stand_in: Any = model
    return Job([Request(text) for text in texts], lengths, Search(stand_in, beam, 1), client)


def answers(job: Job) -> list[str]:
    return [translation.text for translation in job.answer.result(SECONDS)]


@pytest.fixture
def held(serving):
    """Submits a job, which the model begins and may not finish."""

    def hold(batcher: Batcher, model: Model) -> Job:
        model.free.clear()
        first = job_of(model, "first")
        batcher.submit(first)
        serving.wait_until(lambda: model.batches)
        return first

    return hold


def test_what_waits_is_translated_together_up_to_the_budget(batcher, model, held):
    held(batcher, model)
    jobs = [job_of(model, letter * 12) for letter in "abcd"] + [job_of(model, "beam", beam=4)]
    for one in jobs:
        batcher.submit(one)
    model.free.set()
    assert [answers(one) for one in jobs] == [[letter * 12] for letter in "abcd"] + [["maeb"]]
    assert model.batches[1:] == [
        (1, ["a" * 12, "b" * 12, "c" * 12]),
        (1, ["d" * 12]),
        (4, ["beam"]),
    ]


def test_only_the_request_that_the_model_fails_on_fails(batcher, model, held):
    held(batcher, model)
    jobs = [job_of(model, *texts) for texts in (["ab", "cd"], ["ef", "!", "gh"], ["ij"], ["kl"])]
    for one in jobs:
        batcher.submit(one)
    model.free.set()
    assert [answers(jobs[place]) for place in (0, 2, 3)] == [["ba", "dc"], ["ji"], ["lk"]]
    with pytest.raises(TextFailedError) as failure:
        jobs[1].answer.result(SECONDS)
    assert failure.value.index == 1
    assert isinstance(failure.value.__cause__, ValueError)


def test_everybody_gets_the_own_answers(batcher, model, held):
    """Of several searches and clients at once, where the model fails on some."""
    held(batcher, model)
    jobs = [
        job_of(model, *texts, beam=(1, 4)[number % 2], client=str(number % 3))
        for number in range(20)
        for texts in [[f"{number} {place}" for place in range(1 + number % 4)] + ["!"] * (number % 7 == 3)]
    ]
    for one in jobs:
        batcher.submit(one)
    model.free.set()
    for one in jobs:
        texts = [request.text for request in one.requests]
        if "!" not in texts:
            assert answers(one) == [text[::-1] for text in texts]
            continue
        with pytest.raises(TextFailedError) as failure:
            one.answer.result(SECONDS)
        assert failure.value.index == texts.index("!")
    assert not batcher.texts


def test_the_queue_is_bounded_and_takes_a_request_whole_or_not(batcher, model, held):
    """One client can fill half of it."""
    held(batcher, model)
    batcher.submit(job_of(model, *["a"] * 59))
    with pytest.raises(RequestError, match="60 texts are waiting, 59 of this client") as refused:
        batcher.submit(job_of(model, *["b"] * 2))
    assert refused.value.status == 429
    assert int(refused.value.headers["Retry-After"]) >= 1
    last = job_of(model, *["c"] * 60, client="other")
    batcher.submit(last)
    with pytest.raises(RequestError, match="120 texts are waiting"):
        batcher.submit(job_of(model, "d", client="third"))
    model.free.set()
    assert answers(last) == ["c"] * 60


def test_who_has_one_text_does_not_wait_for_who_has_many(batcher, model, held):
    """Not behind another client, nor behind another request of the same client, who may be a proxy."""
    held(batcher, model)
    many = [job_of(model, *["many" * 5] * 8, client="greedy") for _ in range(3)]
    for one in many:
        batcher.submit(one)
    few = [job_of(model, "few", client=client) for client in ("greedy", "modest")]
    for one in few:
        batcher.submit(one)
    model.free.set()
    assert [answers(one) for one in (*many, *few)] == [["ynam" * 5] * 8] * 3 + [["wef"]] * 2
    turns = [number for number, (_, texts) in enumerate(model.batches) if "few" in texts]
    assert turns == [1, 3]
    assert len(model.batches) > 12


def test_what_is_dropped_is_not_translated_and_leaves_room(batcher, model, held):
    first = held(batcher, model)
    unwanted, wanted = job_of(model, *["x"] * 50), job_of(model, "y")
    batcher.submit(unwanted)
    batcher.submit(wanted)
    batcher.drop(unwanted)
    assert batcher.texts == 2
    model.free.set()
    assert answers(first) == ["tsrif"]
    assert answers(wanted) == ["y"]
    assert model.batches[1:] == [(1, ["y"])]
    assert not unwanted.answer.done()


def test_what_is_dropped_before_it_is_taken_does_not_end_the_thread(batcher, model):
    for _ in range(5):
        dropped = job_of(model, "x")
        batcher.submit(dropped)
        batcher.drop(dropped)
    last = job_of(model, "ab")
    batcher.submit(last)
    assert answers(last) == ["ba"]
