"""Texts of many clients: whose turn it is, and one thread that owns the models and translates them together.

Clients share the model, and the requests of a client share its turns, by start-time fair queueing (Goyal, Vin
and Cheng 1996), twice: the next is who has been given the least, and who comes new begins where the turns are
now, with neither a debt nor a claim from the time before. A client with one sentence waits for about one
batch, however many texts others have sent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from deepwire.decoding.translation_io import Request, Translation
from deepwire.serve.model_pool import Search
from deepwire.serve.request import Limits, RequestError

# Thousands of texts of one word in a batch would have more logits at a time than all else takes.
_MIN_COST = 8
# For those who ask again at the same time: else the first of them would be translated alone.
_WAIT = 0.005
_RETRY = {"Retry-After": "2"}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

log = logging.getLogger("deepwire.serve")


class Metrics:
    """The counters of one server, for Prometheus; nothing in them depends on what a text says."""

    def __init__(self) -> None:
        at = self._registry = CollectorRegistry()
        self.requests = Counter(
            "deepwire_requests", "Answered requests by path and HTTP status.", ["path", "status"], registry=at
        )
        self.seconds = Histogram(
            "deepwire_request_seconds", "From headers to answer.", ["path"], buckets=_SECONDS, registry=at
        )
        self.texts = Counter("deepwire_texts", "Texts translated; empty ones not counted.", registry=at)
        self.failed = Counter("deepwire_failed_texts", "Texts that the model failed on.", registry=at)
        self.batch_texts = Histogram(
            "deepwire_batch_texts", "Texts given to the model together.", buckets=_TEXTS, registry=at
        )
        self.batch_seconds = Histogram(
            "deepwire_batch_seconds", "Time that the model took for them.", buckets=_SECONDS, registry=at
        )
        self.queue = Gauge("deepwire_queue_texts", "Texts that wait or are in work.", registry=at)
        ProcessCollector(registry=at)

    def page(self) -> bytes:
        """All of them as text."""
        return generate_latest(self._registry)


class TextFailedError(RequestError):
    """The model failed on a text of a request, counted from 0."""

    def __init__(self, index: int) -> None:
        super().__init__("internal", "the model failed on this text", index=index)


class Job:
    """The texts of one request.

    Attributes:
        requests: The texts that the model is to translate.
        lengths: Subwords of each.
        search: How.
        client: Who asks: clients take turns.
        costs: What translating each takes, in subwords: of short texts the rows of the search are what costs.
        answer: Gets the translations in order, or `TextFailedError`.
    """

    def __init__(
        self, requests: Sequence[Request], lengths: Sequence[int], search: Search, client: Hashable = None
    ) -> None:
        self.requests, self.lengths, self.search, self.client = requests, lengths, search, client
        self.costs = [max(_MIN_COST, length) for length in lengths]
        self.answer: Future[list[Translation]] = Future()
        self.answer.set_running_or_notify_cancel()  # only `Batcher` ends it
        self._translations: dict[int, Translation] = {}

    def set_translation(self, index: int, translation: Translation) -> None:
        """One of the texts is translated."""
        self._translations[index] = translation
        if len(self._translations) == len(self.requests) and not self.answer.done():
            self.answer.set_result([self._translations[place] for place in range(len(self.requests))])

    def failed(self, error: Exception) -> None:
        """One of the texts cannot be translated, and so the request has failed."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Waiting(NamedTuple):
    """A text in the line of its client; in the order of the turns."""

    had: int  # what its request is given before it, in subwords
    arrival: int  # of its request
    place: int
    job: Job


@dataclass
class _Client:
    """The waiting texts of one client.

    Attributes:
        had: What the client was given, in subwords, on the clock of the queue.
        now: The clock of its requests: where one that comes new begins.
        texts: How many wait.
        lines: They, by the settings of their search, each line a heap.
    """

    had: int
    texts: int = 0
    now: int = 0
    lines: dict[Search, list[Waiting]] = field(default_factory=dict)

    def first(self) -> Waiting:
        """The text whose turn it is, whatever its search."""
        return min(line[0] for line in self.lines.values())


class FairQueue:
    """The waiting texts of all clients; not safe for threads by itself.

    Attributes:
        cost: Of translating all of them, in subwords.
    """

    def __init__(self) -> None:
        self.cost = 0
        self._clients: dict[Hashable, _Client] = {}
        self._now = 0  # what the client had whose turn was the last
        self._arrivals = 0
        self._texts = 0

    def __len__(self) -> int:
        return self._texts

    def waiting(self, client: Hashable) -> int:
        """How many texts of a client wait."""
        return self._clients[client].texts if client in self._clients else 0

    def add(self, job: Job) -> None:
        """All texts of a request."""
        client = self._clients.setdefault(job.client, _Client(self._now))
        if not client.texts:
            client.had = max(client.had, self._now)
        line = client.lines.setdefault(job.search, [])
        had = client.now
        for place, cost in enumerate(job.costs):
            heappush(line, Waiting(had, self._arrivals, place, job))
            had += cost
        self._arrivals += 1
        client.texts += len(job.lengths)
        self._texts += len(job.lengths)
        self.cost += sum(job.costs)

    def drop(self, job: Job) -> None:
        """Forget the texts of a request that still wait, if there are any."""
        client = self._clients.get(job.client)
        line = [] if client is None else client.lines.get(job.search, [])
        gone = [turn for turn in line if turn.job is job]
        if client is None or not gone:
            return
        line[:] = [turn for turn in line if turn.job is not job]
        heapify(line)
        client.texts -= len(gone)
        self._texts -= len(gone)
        self.cost -= sum(job.costs[turn.place] for turn in gone)
        if not line:
            del client.lines[job.search]
        self._forget()

    def first_search(self) -> Search:
        """The search of the text whose turn it is; there must be one."""
        waiting = (client for client in self._clients.values() if client.texts)
        return min(waiting, key=lambda client: (client.had, client.first().arrival)).first().job.search

    def take(self, room: int) -> list[Waiting]:
        """The text whose turn it is, and those after it with the same search, up to this cost in subwords.

        What does not fit is not overtaken by what comes later.
        """
        if not self._texts:
            return []
        search = self.first_search()
        turns = [
            (client.had, client.lines[search][0].arrival, number, client)
            for number, client in enumerate(self._clients.values())
            if search in client.lines
        ]
        heapify(turns)
        taken: list[Waiting] = []
        while turns:
            _, _, number, client = turns[0]
            turn = client.lines[search][0]
            cost = turn.job.costs[turn.place]
            if taken and cost > room:
                break
            taken.append(self._pop(client, search))
            room -= cost
            if search in client.lines:
                heapreplace(turns, (client.had, client.lines[search][0].arrival, number, client))
            else:
                heappop(turns)
        self._forget()
        return taken

    def _pop(self, client: _Client, search: Search) -> Waiting:
        turn = heappop(client.lines[search])
        cost = turn.job.costs[turn.place]
        self._now = max(self._now, client.had)
        client.now = max(client.now, turn.had)
        client.had += cost
        client.texts -= 1
        self._texts -= 1
        self.cost -= cost
        if not client.lines[search]:
            del client.lines[search]
        return turn

    def _forget(self) -> None:
        """Clients that have nothing here, and had no more than others have by now."""
        if not self._texts:
            self._clients.clear()
            self._now = 0
            return
        self._clients = {
            name: client for name, client in self._clients.items() if client.texts or client.had > self._now
        }


class Batcher:
    """A bounded queue, and the thread that takes from it as many texts as are worth translating together.

    The text whose turn it is (`FairQueue`) is always among them, so none waits for ever; those with other
    settings of the search wait for the next turn. The translator sorts them by length. Where it fails, halves
    are tried, down to a single text: the others are answered.

    Args:
        limits: How many texts may wait.
        metrics: Counts.
        tidy: Called after every batch.
    """

    def __init__(self, limits: Limits, metrics: Metrics, tidy: Callable[[], object] = lambda: None) -> None:
        self._limits, self._metrics, self._tidy = limits, metrics, tidy
        self._queue = FairQueue()
        self._changed = threading.Condition()
        self._in_work = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="translating", daemon=True)
        metrics.queue.set_function(lambda: self.texts)

    def start(self) -> None:
        """Begin to translate."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether texts are being taken from the queue."""
        return self._thread.is_alive()

    def close(self, seconds: float) -> None:
        """Take no more; wait so long for the batch in work."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)

    @property
    def texts(self) -> int:
        """How many wait or are in work."""
        return len(self._queue) + self._in_work

    def require_room(self, count: int, client: Hashable = None) -> None:
        """Checks that so many texts of a client can be taken; one alone may fill half of the queue.

        Raises:
            RequestError: The queue is full, or nothing is translated any more.
        """
        if self._thread.ident is not None and not self.alive:
            raise RequestError("broken", "the server cannot translate any more and must be restarted")
        with self._changed:
            all_, of_client = self.texts, self._queue.waiting(client)
        if all_ + count > self._limits.queue or of_client + count > max(1, self._limits.queue // 2):
            said = f"{all_} texts are waiting, {of_client} of this client: try again later"
            raise RequestError("queue_full", said, headers=_RETRY)

    def submit(self, job: Job) -> None:
        """Put the texts of a request into the queue, all or none.

        Raises:
            RequestError: As `require_room`.
        """
        with self._changed:
            self.require_room(len(job.requests), job.client)
            self._queue.add(job)
            self._changed.notify()

    def drop(self, job: Job) -> None:
        """Forget the texts of a request that still wait: nobody wants them any more."""
        with self._changed:
            self._queue.drop(job)

    def _run(self) -> None:
        while batch := self._next():
            self._translate(batch)
            with self._changed:
                self._in_work = 0
            self._tidy()

    def _next(self) -> Sequence[Waiting]:
        """The texts to translate now; none when there is no more to do."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: bool(self._queue) or self._closed)
                if not self._queue:
                    return ()
                self._changed.wait_for(
                    lambda: self._closed or not self._queue or self._queue.cost >= self._room(), _WAIT
                )
                if self._queue:  # what waited may be dropped
                    batch = self._queue.take(self._room())
                    self._in_work = len(batch)
                    return batch

    def _room(self) -> int:
        """Subwords that are worth translating with the text whose turn it is."""
        search = self._queue.first_search()
        return search.model.budget(search)

    def _translate(self, batch: Sequence[Waiting]) -> None:
        """Translate a batch; if the model fails on it, each half, so that only what it fails on is lost."""
        batch = [waiting for waiting in batch if not waiting.job.answer.done()]
        if not batch:
            return
        self._metrics.batch_texts.observe(len(batch))
        requests = [waiting.job.requests[waiting.place] for waiting in batch]
        search = batch[0].job.search
        try:
            with self._metrics.batch_seconds.time():
                lengths = [waiting.job.lengths[waiting.place] for waiting in batch]
                translations = search.model.translate(requests, lengths, search)
            if len(translations) != len(batch):
                raise ValueError(f"{len(translations)} translations of {len(batch)} texts")
        except Exception as error:  # whatever one text does, the others are answered
            if len(batch) > 1:
                self._translate(batch[: len(batch) // 2])
                self._translate(batch[len(batch) // 2 :])
                return
            self._metrics.failed.inc()
            self._in_work -= 1
            log.debug("a text failed", exc_info=error)
            failure = TextFailedError(batch[0].place)
            failure.__cause__ = error
            batch[0].job.failed(failure)
            return
        # Counted before the clients know, for they may look, or ask again, at once.
        self._in_work -= len(batch)
        self._metrics.texts.inc(len(batch))
        for waiting, translation in zip(batch, translations, strict=True):
            waiting.job.set_translation(waiting.place, translation)
