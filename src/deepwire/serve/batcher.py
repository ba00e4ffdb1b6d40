"""Texts of many clients, translated together by one thread that owns the model."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence

from deepwire.decoding.translation_io import Request, Translation
from deepwire.serve.prometheus_metrics import Metrics
from deepwire.serve.queue import FairQueue, Job, TextFailedError, Waiting
from deepwire.serve.request import Limits, RequestError, place_of
from deepwire.serve.served_model import Search

Work = Callable[[Sequence[Request], Sequence[int], Search], list[Translation]]
"""Translates texts with so many subwords each."""

_MAX_SECONDS = 60
_PATIENCE = 0.7  # of the time of a request: what it may wait for others, as far as that can be foreseen
_NEW = 0.1  # weight of the newest batch in the average pace

log = logging.getLogger("deepwire.serve")


class Batcher:
    """A bounded queue, and the thread that takes from it as many texts as are worth translating together.

    The text whose turn it is (`FairQueue`) is always among them, so none waits for ever; those with other
    settings of the search wait for the next turn. The translator sorts them by length. Where it fails, halves
    are tried, down to a single text: the others are answered. Should the thread end all the same, who waits
    or comes is told.

    Args:
        work: Translates; only ever called by the one thread.
        budget: How many source subwords are worth translating together.
        limits: How many texts may wait, and how long the first waits for others.
        metrics: Counts.
        tidy: Called after every batch.
        rest: Called once when nothing has come for `rest_after` seconds; what comes meanwhile waits for it.
    """

    def __init__(
        self,
        work: Work,
        budget: Callable[[Search], int],
        limits: Limits,
        metrics: Metrics,
        tidy: Callable[[], object] = lambda: None,
        rest: Callable[[], object] = lambda: None,
        rest_after: float = 10.0,
    ) -> None:
        self._work, self._budget, self._limits, self._metrics = work, budget, limits, metrics
        self._tidy, self._rest, self._rest_after = tidy, rest, rest_after
        self._queue = FairQueue()
        self._changed = threading.Condition()
        self._batch: Sequence[Waiting] = ()
        self._in_work = 0
        self._closed = self._broken = False
        self._seconds_per_text = 0.01
        self._thread = threading.Thread(target=self._run, name="translating", daemon=True)

    def start(self) -> None:
        """Begin to translate."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether texts are being taken from the queue."""
        return self._thread.is_alive() and not self._broken

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
        """Checks that so many texts of a client can be taken.

        Raises:
            RequestError: The queue is full, or so long that the time of the request would be over before its
                turn; or nothing is translated any more.
        """
        if self._broken:
            raise _broken()
        with self._changed:
            all_, of_client, ahead = self.texts, self._queue.waiting(client), self._queue.ahead(client, count)
            wait = (ahead + self._in_work) * self._seconds_per_text
        if all_ + count > self._limits.queue or wait > _PATIENCE * self._limits.request_seconds:
            said = f"{all_} texts are waiting"
        elif of_client + count > self._limits.client_queue:
            said = f"{of_client} texts of this client are waiting"
        else:
            return
        seconds = min(_MAX_SECONDS, max(1, math.ceil(wait)))
        headers = {"Retry-After": str(seconds)}
        raise RequestError("queue_full", f"{said}: try again in {seconds} s", headers=headers)

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
        try:
            while batch := self._next():
                begun = time.monotonic()
                self._translate(batch)
                seconds = time.monotonic() - begun
                with self._changed:
                    self._batch, self._in_work = (), 0
                    self._seconds_per_text += _NEW * (seconds / len(batch) - self._seconds_per_text)
                self._tidy()
        except BaseException as error:  # nobody else would hear of it, and all would wait in vain
            self._break(error)

    def _break(self, error: BaseException) -> None:
        """Take no more, and tell everybody who waits."""
        log.critical("the translating thread has ended: %s at %s; restart the server", *place_of(error))
        with self._changed:
            self._broken = True
            jobs = [*{waiting.job for waiting in self._batch}, *self._queue.jobs()]
            self._queue, self._batch, self._in_work = FairQueue(), (), 0
        for job in jobs:
            job.failed(_broken())

    def _next(self) -> Sequence[Waiting]:
        """The texts to translate now; none when there is no more to do."""

        def is_work() -> bool:
            return bool(self._queue) or self._closed

        with self._changed:
            rests = not self._changed.wait_for(is_work, self._rest_after)
        if rests:
            self._rest()
        with self._changed:
            while True:
                self._changed.wait_for(is_work)
                if not self._queue:
                    return ()
                self._wait_for_others()
                if self._queue:
                    self._batch = self._queue.take(self._budget(self._queue.first_search()))
                    self._in_work = len(self._batch)
                    return self._batch

    def _wait_for_others(self) -> None:
        """Waits a moment for texts that can go along."""

        def is_enough() -> bool:
            if self._closed or not self._queue:
                return True
            return self._queue.cost >= self._budget(self._queue.first_search())

        self._changed.wait_for(is_enough, self._limits.batch_wait_ms / 1000)

    def _translate(self, batch: Sequence[Waiting]) -> None:
        """Translate a batch; if the model fails on it, each half, so that only what it fails on is lost."""
        batch = [waiting for waiting in batch if not waiting.job.answer.done()]
        if not batch:
            return
        self._metrics.batch_texts.observe(len(batch))
        requests = [waiting.job.requests[waiting.place] for waiting in batch]
        try:
            with self._metrics.batch_seconds.time():
                translations = self._work(
                    requests, [waiting.subwords for waiting in batch], batch[0].job.search
                )
            if len(translations) != len(batch):
                raise ValueError(f"{len(translations)} translations of {len(batch)} texts")
        except Exception as error:  # whatever one text does, the others are answered
            if len(batch) == 1:
                self._metrics.failed.inc()
                self._in_work -= 1
                log.debug("a text failed", exc_info=error)
                failure = TextFailedError(batch[0].place)
                failure.__cause__ = error
                batch[0].job.failed(failure)
                return
            self._translate(batch[: len(batch) // 2])
            self._translate(batch[len(batch) // 2 :])
            return
        self._count(batch, translations)
        for waiting, translation in zip(batch, translations, strict=True):
            waiting.job.set_translation(waiting.place, translation)

    def _count(self, batch: Sequence[Waiting], translations: Sequence[Translation]) -> None:
        """Count what is translated; before its clients know, for they may look, or ask again, at once."""
        self._in_work -= len(batch)
        self._metrics.texts.inc(len(batch))
        self._metrics.tokens.labels("source").inc(sum(waiting.subwords for waiting in batch))
        written = sum(len(translation.candidates[0].tokens) for translation in translations)
        self._metrics.tokens.labels("target").inc(written)


def _broken() -> RequestError:
    return RequestError(
        "broken", "the server cannot translate any more and must be restarted; its log says why"
    )
