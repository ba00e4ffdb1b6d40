"""Texts that wait, and whose turn it is: clients share the model, requests share the turns of their client.

Start-time fair queueing (Goyal, Vin and Cheng 1996), twice: the next is who has been given the least, and who
comes new begins where the turns are now, with neither a debt nor a claim from the time before. A client with
one sentence waits for about one batch, however many texts others have sent.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from deepwire.decoding.translation_io import Request, Translation
from deepwire.serve.served_model import Search

# Thousands of texts of one word in a batch would have more logits at a time than all else takes.
_MIN_COST = 8


class TextFailedError(Exception):
    """The model failed on a text.

    Attributes:
        index: Which text of its request, counted from 0.
    """

    def __init__(self, index: int) -> None:
        super().__init__(f"text {index}")
        self.index = index


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
        self._translations: list[Translation | None] = [None] * len(requests)
        self._left = len(requests)

    def set_translation(self, index: int, translation: Translation) -> None:
        """One of the texts is translated."""
        self._translations[index] = translation
        self._left -= 1
        if self._left == 0 and not self.answer.done():
            self.answer.set_result(
                [translation for translation in self._translations if translation is not None]
            )

    def failed(self, error: Exception) -> None:
        """One of the texts cannot be translated, and so the request has failed."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Waiting(NamedTuple):
    """A text that waits for its translation."""

    job: Job
    place: int

    @property
    def subwords(self) -> int:
        """Length of the source."""
        return self.job.lengths[self.place]


class _Turn(NamedTuple):
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
        jobs: How many texts of each request wait.
    """

    had: int
    texts: int = 0
    now: int = 0
    lines: dict[Search, list[_Turn]] = field(default_factory=dict)
    jobs: dict[Job, int] = field(default_factory=dict)

    def first(self) -> _Turn:
        """The text whose turn it is, whatever its search."""
        return min(line[0] for line in self.lines.values())


class FairQueue:
    """The waiting texts of all clients; not safe for threads by itself."""

    def __init__(self) -> None:
        self._clients: dict[Hashable, _Client] = {}
        self._now = 0  # what the client had whose turn was the last
        self._arrivals = 0
        self._texts = 0
        self._cost = 0

    def __len__(self) -> int:
        return self._texts

    @property
    def cost(self) -> int:
        """The cost of translating all of them, in subwords."""
        return self._cost

    def jobs(self) -> list[Job]:
        """The requests that have texts here."""
        return [job for client in self._clients.values() for job in client.jobs]

    def waiting(self, client: Hashable) -> int:
        """How many texts of a client wait."""
        turns = self._clients.get(client)
        return 0 if turns is None else turns.texts

    def ahead(self, client: Hashable, count: int) -> int:
        """At most about how many texts have their turn before the last of `count` new ones of a client."""
        turns = self._clients.get(client)
        before = 0 if turns is None else min(turns.texts, count * len(turns.jobs))
        others = (client_turns.texts for client_turns in self._clients.values() if client_turns is not turns)
        return before + sum(min(texts, before + count) for texts in others)

    def add(self, job: Job) -> None:
        """All texts of a request."""
        client = self._clients.setdefault(job.client, _Client(self._now))
        if not client.texts:
            client.had = max(client.had, self._now)
        line = client.lines.setdefault(job.search, [])
        had = client.now
        for place, cost in enumerate(job.costs):
            heappush(line, _Turn(had, self._arrivals, place, job))
            had += cost
        client.jobs[job] = len(job.lengths)
        client.texts += len(job.lengths)
        self._arrivals += 1
        self._texts += len(job.lengths)
        self._cost += sum(job.costs)

    def drop(self, job: Job) -> None:
        """Forget the texts of a request that still wait, if there are any."""
        client = self._clients.get(job.client)
        if client is None or job not in client.jobs:
            return
        line = client.lines[job.search]
        gone = [turn for turn in line if turn.job is job]
        line[:] = [turn for turn in line if turn.job is not job]
        heapify(line)
        del client.jobs[job]
        client.texts -= len(gone)
        self._texts -= len(gone)
        self._cost -= sum(job.costs[turn.place] for turn in gone)
        if not line:
            del client.lines[job.search]
        self._forget()

    def first_search(self) -> Search:
        """The search of the text whose turn it is; there must be one."""
        return self._first().first().job.search

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

    def _first(self) -> _Client:
        waiting = (client for client in self._clients.values() if client.texts)
        return min(waiting, key=lambda client: (client.had, client.first().arrival))

    def _pop(self, client: _Client, search: Search) -> Waiting:
        turn = heappop(client.lines[search])
        cost = turn.job.costs[turn.place]
        self._now = max(self._now, client.had)
        client.now = max(client.now, turn.had)
        client.had += cost
        client.jobs[turn.job] -= 1
        if not client.jobs[turn.job]:
            del client.jobs[turn.job]
        client.texts -= 1
        self._texts -= 1
        self._cost -= cost
        if not client.lines[search]:
            del client.lines[search]
        return Waiting(turn.job, turn.place)

    def _forget(self) -> None:
        """Clients that have nothing here, and had no more than others have by now."""
        if not self._texts:
            self._clients.clear()
            self._now = 0
            return
        self._clients = {
            name: client for name, client in self._clients.items() if client.texts or client.had > self._now
        }
