"""A request from its checked body to the answer: languages, subwords, the queue, and clients that go away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import deepwire
from deepwire.decoding.translation_io import Request, Translation
from deepwire.ops.allocator import give_memory_back
from deepwire.serving.batcher import Batcher, Job
from deepwire.serving.body import Body
from deepwire.serving.engine import Engine, Search
from deepwire.serving.limits import Limits
from deepwire.serving.metrics import Metrics
from deepwire.serving.refusal import Refusal


class GoneError(Exception):
    """The client has gone away."""


@dataclass
class Work:
    """What a server has to do.

    Attributes:
        requests: Translations that clients wait for.
        stopping: Whether no more are taken.
    """

    requests: int = 0
    stopping: bool = False


class Service:
    """Translates for many clients.

    Args:
        engine: The model.
        limits: What a client can ask for.
        metrics: Counts.
    """

    def __init__(self, engine: Engine, limits: Limits, metrics: Metrics) -> None:
        self.engine, self.limits, self.metrics = engine, limits, metrics
        self.work = Work()
        self.batcher = Batcher(engine.translate, engine.budget, limits, metrics, rest=give_memory_back)
        # One thread: long texts of one client must not take the cores from the model.
        self._segmenting = ThreadPoolExecutor(1, "segmenting")

    def start(self) -> None:
        """Begin to translate."""
        self.batcher.start()

    def close(self, seconds: float) -> None:
        """Stop translating; wait at most so long for the model."""
        self._segmenting.shutdown(wait=False, cancel_futures=True)
        self.batcher.close(seconds)

    @property
    def ready(self) -> bool:
        """Whether it makes sense to send requests."""
        return self.batcher.alive and not self.work.stopping

    def facts(self) -> dict[str, object]:
        """The model, its languages, and what can be asked for."""
        search, limits = self.engine.search, self.limits
        return {
            "model": self.engine.name,
            "version": deepwire.__version__,
            "languages": self.engine.languages(),
            "beam": search.beam,
            "limits": {
                "texts": limits.texts,
                "characters": limits.characters,
                "subwords": self._most_subwords,
                "beam": self._most_beam,
                "body_bytes": limits.body_bytes,
            },
        }

    async def translate(self, body: Body, gone: Callable[[], Awaitable[None]]) -> dict[str, object]:
        """The answer to a request.

        Args:
            body: The request.
            gone: Returns when the client has gone away.

        Raises:
            Refusal: It asks for what cannot be done, or there is no time or room for it.
            GoneError: Nobody waits for the answer any more.
            TextFailedError: The model failed on it.
        """
        self.work.requests += 1
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                return await self._translate(body, gone)
        except TimeoutError:
            self.metrics.cancelled.inc()
            seconds = self.limits.request_seconds
            raise Refusal(
                "out_of_time", f"not translated within {seconds:g} s", headers={"Retry-After": "10"}
            ) from None
        finally:
            self.work.requests -= 1

    async def _translate(self, body: Body, gone: Callable[[], Awaitable[None]]) -> dict[str, object]:
        search = self._search(body)
        to, from_ = self.engine.into(body.target, body.source)
        lines = body.lines
        full = [index for index, line in enumerate(lines) if line and not line.isspace()]
        found: dict[int, Translation] = {}
        if full:
            self.batcher.require_room(len(full))
            lengths = await self._lengths([lines[index] for index in full], full)
            requests = [Request(lines[index], to=to, from_=from_) for index in full]
            translations = await self._answer(Job(requests, lengths, search), gone)
            found = dict(zip(full, translations, strict=True))
        scores = body.n_best is not None
        return {"translations": [_record(found.get(index), scores) for index in range(len(lines))]}

    @property
    def _most_subwords(self) -> int:
        return min(self.limits.subwords, self.engine.most_subwords)

    @property
    def _most_beam(self) -> int:
        return max(self.limits.beam, self.engine.search.beam)

    def _search(self, body: Body) -> Search:
        beam = body.beam or self.engine.search.beam
        n_best = body.n_best or 1
        if beam > self._most_beam:
            raise Refusal("invalid", f"beam: at most {self._most_beam}, but is {beam}")
        if n_best > beam:
            raise Refusal("invalid", f"n_best: at most the beam ({beam}), but is {n_best}")
        return Search(beam, n_best)

    async def _lengths(self, texts: Sequence[str], indices: Sequence[int]) -> list[int]:
        """Subwords of each text; `indices` are the places of the texts in the request."""
        loop = asyncio.get_running_loop()
        lengths = await loop.run_in_executor(self._segmenting, self.engine.lengths, texts)
        for index, length in zip(indices, lengths, strict=True):
            if length > self._most_subwords:
                raise Refusal(
                    "invalid", f"text {index}: {length} subwords, at most {self._most_subwords}", index=index
                )
        return lengths

    async def _answer(self, job: Job, gone: Callable[[], Awaitable[None]]) -> list[Translation]:
        """Wait for the model or for the end of the client, whichever comes first."""
        self.batcher.submit(job)
        answer = asyncio.wrap_future(job.answer)
        leaving = asyncio.ensure_future(gone())
        either: list[asyncio.Future[list[Translation]] | asyncio.Future[None]] = [answer, leaving]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self.metrics.cancelled.inc()
                raise GoneError
            return answer.result()
        finally:
            leaving.cancel()
            if not job.answer.done():
                self.batcher.drop(job)


def _record(translation: Translation | None, scores: bool) -> dict[str, object]:
    """A translation as JSON; of an empty text there is none."""
    if translation is None:
        empty: dict[str, object] = {"text": "", "score": 0.0, "log_probability": 0.0}
        return {"text": "", "candidates": [empty]} if scores else {"text": ""}
    if not scores:
        return {"text": translation.text}
    candidates = [
        {"text": one.text, "score": one.score, "log_probability": one.log_probability}
        for one in translation.candidates
    ]
    return {"text": translation.text, "candidates": candidates}
