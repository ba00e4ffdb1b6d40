"""A request from its checked body to the answer: languages, subwords, the queue, and clients that go away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import deepwire
from deepwire.decoding.translation_io import Request, Translation
from deepwire.ops.allocator import Surplus, give_memory_back
from deepwire.serving.batcher import Batcher
from deepwire.serving.prometheus_metrics import Metrics
from deepwire.serving.queue import Job, TextFailedError
from deepwire.serving.request import Limits, RequestBody, RequestError, TextLines, has_words
from deepwire.serving.served_model import Search, ServedModel


class _LinePosition(NamedTuple):
    """A line of a request: which text, and which line of it, both counted from 0."""

    text: int
    line: int


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
        model: What translates.
        limits: What a client can ask for.
        metrics: Counts.
    """

    def __init__(self, model: ServedModel, limits: Limits, metrics: Metrics) -> None:
        self.model, self.limits, self.metrics = model, limits, metrics
        self.work = Work()
        self.batcher = Batcher(
            model.translate, model.budget, limits, metrics, tidy=Surplus().check, rest=give_memory_back
        )
        # One thread: long texts of one client must not take the cores from the model.
        self._segmenting = ThreadPoolExecutor(1, "segmenting")

    def start(self) -> None:
        """Begin to translate."""
        self.batcher.start()

    def close(self, seconds: float) -> None:
        """Stop translating; wait at most so long for the model."""
        self._segmenting.shutdown(wait=False, cancel_futures=True)
        self.batcher.close(seconds)

    def facts(self) -> dict[str, object]:
        """The model, its languages, and what can be asked for."""
        search, limits = self.model.search, self.limits
        return {
            "model": self.model.name,
            "version": deepwire.__version__,
            "languages": self.model.languages(),
            "beam": search.beam,
            "limits": {
                "texts": limits.texts,
                "characters": limits.characters,
                "subwords": self._most_subwords,
                "beam": self._most_beam,
                "body_bytes": limits.body_bytes,
            },
        }

    async def translate(
        self, body: RequestBody, client: str, gone: Callable[[], Awaitable[None]]
    ) -> dict[str, object]:
        """The answer to a request.

        Args:
            body: The request.
            client: Who asks: clients take turns.
            gone: Returns when the client has gone away.

        Raises:
            RequestError: It asks for what cannot be done, or there is no time or room for it.
            GoneError: Nobody waits for the answer any more.
            TextFailedError: The model failed on it.
        """
        self.work.requests += 1
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                return await self._translate(body, client, gone)
        except TimeoutError:
            self.metrics.cancelled.inc()
            seconds = self.limits.request_seconds
            raise RequestError(
                "out_of_time", f"not translated within {seconds:g} s", headers={"Retry-After": "10"}
            ) from None
        finally:
            self.work.requests -= 1

    async def _translate(
        self, body: RequestBody, client: str, gone: Callable[[], Awaitable[None]]
    ) -> dict[str, object]:
        search = self._search(body)
        to, from_ = self.model.into(body.target, body.source)
        texts = [TextLines.of(text) for text in body.all]
        translated: dict[_LinePosition, Translation] = {}
        places = [place for place in _places(texts) if has_words(_line(texts, place))]
        if places:
            self.batcher.require_room(len(places), client)
            lines = [_line(texts, place) for place in places]
            lengths = await self._lengths(lines, places, texts)
            requests = [Request(line, to=to, from_=from_) for line in lines]
            try:
                translations = await self._answer(Job(requests, lengths, search, client), gone)
            except TextFailedError as error:
                raise TextFailedError(places[error.index].text) from error.__cause__
            translated = dict(zip(places, translations, strict=True))
        scores = body.n_best is not None
        return {
            "translations": [_record(text, index, translated, scores) for index, text in enumerate(texts)]
        }

    @property
    def _most_subwords(self) -> int:
        return min(self.limits.subwords, self.model.most_subwords)

    @property
    def _most_beam(self) -> int:
        return max(self.limits.beam, self.model.search.beam)

    def _search(self, body: RequestBody) -> Search:
        beam = body.beam or self.model.search.beam
        n_best = body.n_best or 1
        if beam > self._most_beam:
            raise RequestError("invalid", f"beam: at most {self._most_beam}, but is {beam}")
        if n_best > beam:
            raise RequestError("invalid", f"n_best: at most the beam ({beam}), but is {n_best}")
        return Search(beam, n_best)

    async def _lengths(
        self, lines: Sequence[str], places: Sequence[_LinePosition], texts: Sequence[TextLines]
    ) -> list[int]:
        """Subwords of each line; `places` and `texts` are where it stands in the request."""
        loop = asyncio.get_running_loop()
        lengths = await loop.run_in_executor(self._segmenting, self.model.lengths, lines)
        for (index, number), length in zip(places, lengths, strict=True):
            if length > self._most_subwords:
                where = f"text {index}"
                if texts[index].breaks:
                    where += f", line {number + 1}"
                raise RequestError(
                    "invalid", f"{where}: {length} subwords, at most {self._most_subwords}", index=index
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


def _places(texts: Sequence[TextLines]) -> Iterator[_LinePosition]:
    for index, text in enumerate(texts):
        for number in range(len(text.lines)):
            yield _LinePosition(index, number)


def _line(texts: Sequence[TextLines], place: _LinePosition) -> str:
    return texts[place.text].lines[place.line]


def _record(
    text: TextLines, index: int, translated: Mapping[_LinePosition, Translation], scores: bool
) -> dict[str, object]:
    """A translation as JSON, of a text of several lines with the line breaks of the text.

    With scores, one line has its candidates, and several have a record each under `lines`: the translation of
    a line does not depend on the others.
    """
    lines = [
        _line_record(translated.get(_LinePosition(index, number)), scores)
        for number in range(len(text.lines))
    ]
    if len(lines) == 1:
        return lines[0]
    whole: dict[str, object] = {"text": text.joined([str(line["text"]) for line in lines])}
    return {**whole, "lines": lines} if scores else whole


def _line_record(translation: Translation | None, scores: bool) -> dict[str, object]:
    """The translation of a line; of an empty one there is none."""
    if translation is None:
        empty: dict[str, object] = {"text": "", "score": 0.0, "log_probability": 0.0}
        return {"text": "", "candidates": [empty]} if scores else {"text": ""}
    if not scores:
        return {"text": translation.text}
    candidates = [
        {"text": candidate.text, "score": candidate.score, "log_probability": candidate.log_probability}
        for candidate in translation.candidates
    ]
    return {"text": translation.text, "candidates": candidates}
