from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from deepwire.decoding.translation_io import Candidate, Request, Translation
from deepwire.serve.batcher import Batcher
from deepwire.serve.prometheus_metrics import Metrics
from deepwire.serve.queue import Job, TextFailedError
from deepwire.serve.request import Limits, RequestError
from deepwire.serve.served_model import Search

GREEDY, BEAM = Search(1, 1), Search(4, 1)
SECONDS = 60


class Model:
    """Turns texts round; fails where one says so; notes what it was given together."""

    def __init__(self) -> None:
        self.batches: list[tuple[Search, list[str]]] = []
        self.free = threading.Event()
        self.free.set()

    def __call__(self, requests, lengths, search):
        self.batches.append((search, [request.text for request in requests]))
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
    found = Batcher(model, lambda search: 40 // search.beam, Limits(queue=60, batch_wait_ms=2), Metrics())
    found.start()
    yield found
    model.free.set()
    found.close(SECONDS)
    assert not found.alive


def job(*texts: str, search: Search = GREEDY, client: str = "") -> Job:
    return Job([Request(text) for text in texts], [len(text) for text in texts], search, client)


def answers(job: Job) -> list[str]:
    return [translation.text for translation in job.answer.result(SECONDS)]


@pytest.fixture
def held(serving):
    """Submits a job, which the model begins and may not finish."""

    def hold(batcher: Batcher, model: Model) -> Job:
        model.free.clear()
        first = job("first")
        batcher.submit(first)
        serving.wait_until(lambda: model.batches)
        return first

    return hold


def test_what_waits_is_translated_together_up_to_the_budget(batcher, model, held):
    held(batcher, model)
    jobs = [job(letter * 12) for letter in "abcd"] + [job("beam", search=BEAM)]
    for one in jobs:
        batcher.submit(one)
    model.free.set()
    assert [answers(one) for one in jobs] == [[letter * 12] for letter in "abcd"] + [["maeb"]]
    assert model.batches[1:] == [
        (GREEDY, ["a" * 12, "b" * 12, "c" * 12]),
        (GREEDY, ["d" * 12]),
        (BEAM, ["beam"]),
    ]


def test_only_the_request_that_the_model_fails_on_fails(batcher, model, held):
    held(batcher, model)
    jobs = [job("ab", "cd"), job("ef", "!", "gh"), job("ij"), job("kl")]
    for one in jobs:
        batcher.submit(one)
    model.free.set()
    assert [answers(jobs[place]) for place in (0, 2, 3)] == [["ba", "dc"], ["ji"], ["lk"]]
    with pytest.raises(TextFailedError) as failure:
        jobs[1].answer.result(SECONDS)
    assert failure.value.index == 1
    assert isinstance(failure.value.__cause__, ValueError)


def test_the_queue_is_bounded_and_takes_a_request_whole_or_not(batcher, model, held):
    held(batcher, model)
    batcher.submit(job(*["a"] * 40))
    with pytest.raises(RequestError, match="41 texts are waiting") as refused:
        batcher.submit(job(*["b"] * 20))
    assert refused.value.status == 429
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 60
    last = job(*["c"] * 19)
    batcher.submit(last)
    assert batcher.texts == 60
    model.free.set()
    assert answers(last) == ["c"] * 19


def test_who_would_wait_too_long_is_told_at_once(batcher, model, held):
    held(batcher, model)
    batcher.submit(job(*["a"] * 9))
    batcher._seconds_per_text = 5.0
    with pytest.raises(RequestError, match="10 texts are waiting: try again in 50 s") as refused:
        batcher.submit(job(*["b"] * 9))
    assert refused.value.status == 429
    batcher.submit(job("d"))  # its turn comes earlier
    batcher._seconds_per_text = 3.5
    last = job(*["c"] * 9)
    batcher.submit(last)
    model.free.set()
    assert answers(last) == ["c"] * 9


def test_one_client_cannot_fill_the_queue(model, held):
    limits = Limits(queue=60, client_queue=30, batch_wait_ms=2)
    batcher = Batcher(model, lambda _: 40, limits, Metrics())
    batcher.start()
    held(batcher, model)
    batcher.submit(job(*["a"] * 20, client="greedy"))
    with pytest.raises(RequestError, match="20 texts of this client are waiting") as refused:
        batcher.submit(job(*["a"] * 11, client="greedy"))
    assert refused.value.status == 429
    batcher.submit(job(*["b"] * 30, client="other"))
    model.free.set()
    batcher.close(SECONDS)


def test_who_has_one_text_does_not_wait_for_who_has_many(batcher, model, held):
    """Not behind another client, nor behind another request of the same client, who may be a proxy."""
    held(batcher, model)
    many = [job(*["many" * 5] * 8, client="greedy") for _ in range(3)]
    for one in many:
        batcher.submit(one)
    few = [job("few", client=client) for client in ("greedy", "modest")]
    for one in few:
        batcher.submit(one)
    model.free.set()
    assert [answers(one) for one in (*many, *few)] == [["ynam" * 5] * 8] * 3 + [["wef"]] * 2
    turns = [number for number, (_, texts) in enumerate(model.batches) if "few" in texts]
    assert turns == [1, 3]
    assert len(model.batches) > 12


class EndError(BaseException):
    pass


def end(*_: object) -> None:
    raise EndError("a secret text")


@pytest.mark.parametrize("where", ["work", "tidy"])
def test_when_the_thread_ends_whoever_waits_or_comes_is_told_at_once(where, model, caplog):
    """The first batch has one of the texts: where it is translated before the end, it is answered."""
    functions = {"work": model, where: end}
    batcher = Batcher(functions.pop("work"), lambda _: 8, Limits(batch_wait_ms=0), Metrics(), **functions)
    jobs = [job("one"), job("two"), job("three", search=BEAM)]
    for one in jobs:
        batcher.submit(one)
    batcher.start()
    faults = [one.answer.exception(SECONDS) for one in jobs]
    assert all(isinstance(fault, RequestError) and fault.status == 503 for fault in faults[where == "tidy" :])
    assert (faults[0] is None) == (where == "tidy")
    assert not batcher.alive
    with pytest.raises(RequestError, match="must be restarted") as refused:
        batcher.submit(job("late"))
    assert (refused.value.code, batcher.texts) == ("broken", 0)
    assert "the translating thread has ended: EndError at test_batcher.py:" in caplog.text
    assert "secret" not in caplog.text


def test_what_is_dropped_is_not_translated_and_leaves_room(batcher, model, held):
    first = held(batcher, model)
    unwanted, wanted = job(*["x"] * 50), job("y")
    batcher.submit(unwanted)
    batcher.submit(wanted)
    batcher.drop(unwanted)
    assert batcher.texts == 2
    model.free.set()
    assert answers(first) == ["tsrif"]
    assert answers(wanted) == ["y"]
    assert model.batches[1:] == [(GREEDY, ["y"])]
    assert not unwanted.answer.done()


def test_everybody_gets_the_own_answers(model, held, serving):
    """Many threads, texts of all lengths, several searches, poisoned ones among them."""
    patient = Limits(batch_wait_ms=1, request_seconds=3600)
    batcher = Batcher(model, lambda search: 200, patient, Metrics())
    batcher.start()
    held(batcher, model)
    begun, wrong = [], []

    def client(seed: int) -> None:
        draw = random.Random(seed)
        for turn in range(20):
            texts = [f"{seed} {draw.random()}"[: draw.randint(1, 20)] for _ in range(draw.randint(1, 6))]
            poisoned = draw.random() < 0.1
            asked = job(*texts, *["!"] * poisoned, search=draw.choice([GREEDY, BEAM]), client=str(seed % 5))
            batcher.require_room(len(texts), str(seed))
            batcher.submit(asked)
            begun.append(turn)
            try:
                found: object = answers(asked)
            except TextFailedError as failure:
                found = failure.index
            if found != (len(texts) if poisoned else [text[::-1] for text in texts]):
                wrong.append((texts, found))

    with ThreadPoolExecutor(8) as clients:
        done = clients.map(client, range(8))
        serving.wait_until(lambda: begun == [0] * 8)  # three clients or more ask for the same search
        model.free.set()
        list(done)
    batcher.close(SECONDS)
    assert not wrong
    assert not batcher.texts
    together = [{text[0] for text in texts} - {"!"} for _, texts in model.batches[1:]]
    assert max(map(len, together)) > 1, "no batch had texts of several clients"


@pytest.mark.parametrize("texts", [("one", "two", "three"), ("bad!",)])
def test_texts_are_counted_before_their_client_knows(texts, model):
    metrics = Metrics()
    batcher = Batcher(model, lambda search: 40, Limits(), metrics)
    seen = []
    asked = job(*texts)
    asked.answer.add_done_callback(lambda answer: seen.append((batcher.texts, metrics.page().decode())))
    batcher.start()
    batcher.submit(asked)
    batcher.close(SECONDS)
    [(left, page)] = seen
    assert left == 0
    translated, failed = (0, 1) if asked.answer.exception() else (len(texts), 0)
    assert f"deepwire_texts_total {translated:.1f}\n" in page
    assert f"deepwire_failed_texts_total {failed:.1f}\n" in page


def test_it_rests_once_when_nothing_has_come_for_a_while(model):
    """Not while there is work, and again after new work."""
    rests, rested = [], threading.Event()

    def rest() -> None:
        rests.append(len(model.batches))
        rested.set()

    batcher = Batcher(model, lambda _: 40, Limits(batch_wait_ms=0), Metrics(), rest=rest, rest_after=0.05)
    for count in (1, 2):
        work = job("text")
        batcher.submit(work)
        if count == 1:
            batcher.start()
        assert answers(work) == ["txet"]
        assert rested.wait(10)
        rested.clear()
        assert not rested.wait(0.2)
        assert rests == list(range(1, count + 1))
    batcher.close(10)
    assert len(rests) == 2
