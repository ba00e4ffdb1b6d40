"""Texts of many clients, translated together by one thread that owns the model."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from deepwire.decoding.translation_io import Request, Translation
from deepwire.serving.limits import Limits
from deepwire.serving.metrics import Metrics
from deepwire.serving.request_error import RequestError
from deepwire.serving.served_model import Search

Work = Callable[[Sequence[Request], Sequence[int], Search], list[Translation]]
"""Translates texts with so many subwords each."""

_MOST_SECONDS = 60
_PATIENCE = 0.7  # of the time of a request: what it may wait for others, as far as that can be foreseen
_NEW = 0.1  # weight of the newest batch in the average pace


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
        answer: Gets the translations in order, or `TextFailedError`.
    """

    def __init__(self, requests: Sequence[Request], lengths: Sequence[int], search: Search) -> None:
        self.requests, self.lengths, self.search = requests, lengths, search
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

    def failed(self, index: int, error: Exception) -> None:
        """One of the texts cannot be translated, and so the request has failed."""
        if not self.answer.done():
            failure = TextFailedError(index)
            failure.__cause__ = error
            self.answer.set_exception(failure)


class _Waiting(NamedTuple):
    """A text in the queue."""

    job: Job
    place: int

    @property
    def subwords(self) -> int:
        return self.job.lengths[self.place]


class Batcher:
    """A bounded queue, and the thread that takes from it as many texts as are worth translating together.

    The oldest text is always among them, so none waits for ever; those with other settings of the search wait
    for the next turn. The translator sorts them by length. Where it fails, halves are tried, down to a single
    text: the others are answered.

    Args:
        work: Translates; only ever called by the one thread.
        budget: How many source subwords are worth translating together.
        limits: How many texts may wait, and how long the first waits for others.
        metrics: Counts.
        rest: Called once when nothing has come for `rest_after` seconds; what comes meanwhile waits for it.
    """

    def __init__(
        self,
        work: Work,
        budget: Callable[[Search], int],
        limits: Limits,
        metrics: Metrics,
        rest: Callable[[], object] = lambda: None,
        rest_after: float = 10.0,
    ) -> None:
        self._work, self._budget, self._limits, self._metrics = work, budget, limits, metrics
        self._rest, self._rest_after = rest, rest_after
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._in_work = 0
        self._closed = False
        self._seconds_per_text = 0.01
        self._thread = threading.Thread(target=self._run, name="translating", daemon=True)

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

    def require_room(self, count: int) -> None:
        """See that so many texts can be taken.

        Raises:
            RequestError: The queue is full, or so long that the time of the request would be over first.
        """
        wait = self.texts * self._seconds_per_text
        if self.texts + count > self._limits.queue or wait > _PATIENCE * self._limits.request_seconds:
            seconds = min(_MOST_SECONDS, max(1, math.ceil(wait)))
            raise RequestError(
                "queue_full",
                f"{self.texts} texts are waiting: try again in {seconds} s",
                headers={"Retry-After": str(seconds)},
            )

    def submit(self, job: Job) -> None:
        """Put the texts of a request into the queue, all or none.

        Raises:
            RequestError: The queue is full.
        """
        with self._changed:
            self.require_room(len(job.requests))
            self._queue.extend(_Waiting(job, index) for index in range(len(job.requests)))
            self._changed.notify()

    def drop(self, job: Job) -> None:
        """Forget the texts of a request that still wait: nobody wants them any more."""
        with self._changed:
            self._queue = deque(waiting for waiting in self._queue if waiting.job is not job)

    def _run(self) -> None:
        while batch := self._next():
            begun = time.monotonic()
            self._translate(batch)
            seconds = time.monotonic() - begun
            with self._changed:
                self._in_work = 0
                self._seconds_per_text += _NEW * (seconds / len(batch) - self._seconds_per_text)

    def _next(self) -> list[_Waiting]:
        """The texts to translate now; none when there is no more to do."""
        if not self._has_work_within(self._rest_after):
            self._rest()
        with self._changed:
            while True:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return []
                self._wait_for_others()
                if batch := self._take():
                    self._in_work = len(batch)
                    return batch

    def _has_work_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._queue) or self._closed, seconds)

    def _wait_for_others(self) -> None:
        """What comes within a moment goes along."""
        latest = time.monotonic() + self._limits.batch_wait_ms / 1000
        while self._queue and not self._closed and not self._is_enough():
            left = latest - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _is_enough(self) -> bool:
        return sum(waiting.subwords for waiting in self._queue) >= self._budget(self._queue[0].job.search)

    def _take(self) -> list[_Waiting]:
        """From the front, up to the budget, all that are searched for as the first is."""
        if not self._queue:
            return []
        search = self._queue[0].job.search
        room = self._budget(search)
        taken: list[_Waiting] = []
        left: deque[_Waiting] = deque()
        for waiting in self._queue:
            if waiting.job.search == search and (not taken or waiting.subwords <= room):
                taken.append(waiting)
                room -= waiting.subwords
            else:
                left.append(waiting)
                # What came later does not overtake what did not fit.
                room = 0 if waiting.job.search == search else room
        self._queue = left
        return taken

    def _translate(self, batch: Sequence[_Waiting]) -> None:
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
                logging.getLogger("deepwire.serving").debug("a text failed", exc_info=error)
                batch[0].job.failed(batch[0].place, error)
                return
            self._translate(batch[: len(batch) // 2])
            self._translate(batch[len(batch) // 2 :])
            return
        self._count(batch, translations)
        for waiting, translation in zip(batch, translations, strict=True):
            waiting.job.set_translation(waiting.place, translation)

    def _count(self, batch: Sequence[_Waiting], translations: Sequence[Translation]) -> None:
        """Count what is translated; before its clients know, for they may look, or ask again, at once."""
        self._in_work -= len(batch)
        self._metrics.texts.inc(len(batch))
        self._metrics.tokens.labels("source").inc(sum(waiting.subwords for waiting in batch))
        written = sum(len(translation.candidates[0].tokens) for translation in translations)
        self._metrics.tokens.labels("target").inc(written)
