"""A request from its checked body to the answer: languages, subwords, the queue, time, clients that leave."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import deepwire
from deepwire.data.context import NO_CONTEXT
from deepwire.data.text.pairs import is_blank
from deepwire.data.text.sentences import SentenceSplitter
from deepwire.decoding.document_context import Documents, Wave
from deepwire.decoding.translation_io import Request, Translation
from deepwire.ops.allocator import Surplus, give_memory_back
from deepwire.serve.answers import (
    LinePosition,
    SplitTexts,
    as_it_is,
    by_way_of,
    line_at,
    places_of,
    text_record,
)
from deepwire.serve.batcher import Batcher
from deepwire.serve.disconnection import Disconnected, DisconnectedError, unless_gone
from deepwire.serve.language_detection import Detection, SourceDetector, likely_languages
from deepwire.serve.model_pool import Leg, ModelPool, Route
from deepwire.serve.prometheus_metrics import Metrics
from deepwire.serve.queue import Job, TextFailedError
from deepwire.serve.request import AUTO, Limits, RequestBody, RequestError, TextBody, TextLines
from deepwire.serve.served_model import Search

_HOPELESS = 2
"""A text is given up where the rest of it needs so many times as long as there is left."""

_due: ContextVar[float] = ContextVar("when the time of the request is over", default=math.inf)


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Around the work on a request.

    Raises:
        RequestError: It took longer.
    """
    before = _due.set(time.monotonic() + seconds)
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise RequestError(
            "out_of_time", f"not translated within {seconds:g} s", headers={"Retry-After": "10"}
        ) from None
    finally:
        _due.reset(before)


class LongText:
    """A text that is translated a part after the other, in the time of its request.

    Args:
        sentences: How many it has.
    """

    def __init__(self, sentences: int) -> None:
        self._sentences, self._begun, self._due = sentences, time.monotonic(), _due.get()

    def require_time(self, done: int) -> None:
        """Checks that there is hope for the rest: who waits in vain should know it early.

        Args:
            done: How many sentences are translated.

        Raises:
            RequestError: At the pace so far, the time will be over long before the end.
        """
        now = time.monotonic()
        needed = (self._sentences - done) * (now - self._begun) / done if done else 0
        if needed > _HOPELESS * (self._due - now):
            most = done * (self._due - self._begun) / (now - self._begun)
            said = f"{self._sentences:,} sentences, of which about {most:,.0f} can be translated in time"
            raise RequestError("too_large", f"{said}: send them in parts")


_Result = TypeVar("_Result")
_PART = 256  # sentences of a long text that wait at a time


@dataclass
class Work:
    """The work of a server.

    Attributes:
        requests: Translations that clients wait for.
        stopping: Whether no more are taken.
    """

    requests: int = 0
    stopping: bool = False


class Service:
    """Translates for many clients.

    Args:
        models: What translates.
        limits: What a client can ask for.
        metrics: Counts.
    """

    def __init__(self, models: ModelPool, limits: Limits, metrics: Metrics) -> None:
        self.models, self.limits, self.metrics = models, limits, metrics
        self.sources = SourceDetector(models.routes)
        self.work = Work()
        self.batcher = Batcher(
            models.translate, models.budget, limits, metrics, tidy=Surplus().check, rest=give_memory_back
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
        limits = self.limits
        return {
            "model": self.models.name,
            "version": deepwire.__version__,
            "languages": self.models.languages(),
            "beam": self.models.search.beam,
            "alignment": self.models.aligns,
            "detects": bool(self.models.routes),
            "limits": {
                "texts": limits.texts,
                "characters": limits.characters,
                "subwords": min(limits.subwords, self.models.fewest_subwords),
                "beam": self.most_beam,
                "body_bytes": limits.body_bytes,
            },
        }

    async def translate(
        self, body: RequestBody, client: str, disconnected: Disconnected
    ) -> dict[str, object]:
        """The answer to a request.

        Args:
            body: The request.
            client: Who asks: clients take turns.
            disconnected: Returns when the client has gone away.

        Raises:
            RequestError: It asks for what cannot be done, or there is no time or room for it.
            DisconnectedError: Nobody waits for the answer any more.
            TextFailedError: The model failed on it.
        """
        async with self.in_time(self.limits.request_seconds):
            return await self._translate(body, client, disconnected)

    @asynccontextmanager
    async def in_time(self, seconds: float) -> AsyncIterator[None]:
        """Around the work on a request, which the server does not end before; and not for longer than this.

        Raises:
            RequestError: It took longer.
        """
        self.work.requests += 1
        try:
            async with time_limit(seconds):
                yield
        except RequestError as error:
            self.metrics.cancelled.inc(error.code == "out_of_time")
            raise
        finally:
            self.work.requests -= 1

    async def run_in_worker(self, work: Callable[[], _Result]) -> _Result:
        """The result of work on texts that is done beside the model, and does not stop other requests."""
        return await asyncio.get_running_loop().run_in_executor(self._segmenting, work)

    async def resolve_route(
        self, text: str, source: str | None, target: str | None
    ) -> tuple[Detection | None, Route | None]:
        """In which language a text is, if that is to be found out, and how to translate it.

        There is no route for a text without a letter, nor for one that is in the target language already.

        Raises:
            RequestError: The languages are not known, or one is needed that was not given.
        """
        target = self.models.label(target)
        if source != AUTO:
            return None, self.models.route(target, source)
        detection = await self.run_in_worker(partial(self.sources.language_of, text, target))
        if detection is None or self.sources.is_target(detection.language, target):
            return detection, None
        return detection, self.models.route(target, detection.language)

    def splitter(self, route: Route) -> SentenceSplitter:
        """Cuts texts into what the first model of a route reads."""
        leg = route[0]
        language = "" if leg.direction is None else leg.direction.source
        return SentenceSplitter(
            language, lambda texts: self.models.lengths(leg, texts), self._most_subwords(leg)
        )

    async def detect(self, body: TextBody) -> dict[str, object]:
        """The likely languages of each text.

        Raises:
            RequestError: As `SourceDetector.among`, or there was no time for it.
        """
        among = self.sources.among(self.models.label(body.target))
        work = [partial(likely_languages, text, among) for text in body.all]
        async with self.in_time(self.limits.request_seconds):
            detections = [await self.run_in_worker(each) for each in work]  # others come in between
        return {"detections": [[detection._asdict() for detection in likely] for likely in detections]}

    async def translate_sentences(
        self,
        sentences: Sequence[str],
        route: Route,
        n_best: int,
        client: str,
        disconnected: Disconnected,
        search: Search | None = None,
        starts: Collection[int] | None = None,
    ) -> list[Translation]:
        """Translations of sentences that are not too long, however many there are: a part after the other.

        Args:
            sentences: As `splitter` cuts them.
            route: How.
            n_best: How many translations of each.
            client, disconnected: As in `translate`.
            search: How; None = as the server does, with a wider beam if so many translations are wanted.
            starts: The places of those that begin a document; None: each stands for itself.

        Raises:
            RequestError, DisconnectedError, TextFailedError: As in `translate`.
        """
        search = search or Search(max(n_best, self.models.search.beam), n_best)
        translated: list[Translation] = []
        documents = None if starts is None else [Documents(self.models.context(leg)) for leg in route]
        text = LongText(len(sentences))
        for first in range(0, len(sentences), _PART):
            text.require_time(first)
            part = sentences[first : first + _PART]
            self.batcher.require_room(len(part), client)
            lengths = await self.run_in_worker(partial(self.models.lengths, route[0], part))
            try:
                begins = None if starts is None else {place - first for place in starts}
                translated += await self._along(
                    part, lengths, route, search, client, disconnected, begins, documents
                )
            except TextFailedError as error:
                raise TextFailedError(first + error.index) from error.__cause__
        return translated

    async def _along(
        self,
        texts: Sequence[str],
        lengths: Sequence[int],
        route: Route,
        search: Search,
        client: str,
        disconnected: Disconnected,
        starts: Collection[int] | None = None,
        documents: Sequence[Documents] | None = None,
    ) -> list[Translation]:
        """Leg after leg; only the last one has several candidates.

        `starts` are the places of the texts that begin a document; None: each is one. `documents` are those
        that go on here, of each leg.
        """
        translations: list[Translation] = []
        for number, leg in enumerate(route):
            before = translations
            if number:
                texts = [translation.text for translation in translations]
                lengths = await self.run_in_worker(partial(self.models.lengths, leg, texts))
                self._require_short(leg, lengths)
            last = number == len(route) - 1
            leg_search = search._replace(model=leg.model, n_best=search.n_best if last else 1)
            requests = [Request(text, to=leg.to, from_=leg.from_) for text in texts]
            context = NO_CONTEXT if starts is None else self.models.context(leg)
            if context.used:
                costs = [min(length * (context.source + 1), context.max_length) for length in lengths]
                read = Documents(context) if documents is None else documents[number]
                waves = read.waves(requests, starts or ())
                translations = await self._in_waves(read, waves, costs, leg_search, client, disconnected)
            else:
                translations = await self._answer(Job(requests, lengths, leg_search, client), disconnected)
            if number and search.alignment:
                translations = [by_way_of(*pair) for pair in zip(before, translations, strict=True)]
        return translations

    async def _in_waves(
        self,
        documents: Documents,
        waves: Iterator[Wave],
        lengths: Sequence[int],
        search: Search,
        client: str,
        disconnected: Disconnected,
    ) -> list[Translation]:
        """Lines of documents, of which some wait for the translations of others."""
        translations: dict[int, Translation] = {}
        for wave in waves:
            job = Job(wave.requests, [lengths[place] for place in wave.places], search, client)
            try:
                answers = await self._answer(job, disconnected)
            except TextFailedError as error:
                raise TextFailedError(wave.places[error.index]) from error.__cause__
            documents.note(answer.text for answer in answers)
            translations |= zip(wave.places, answers, strict=True)
        return [translations[place] for place in range(len(translations))]

    def _require_short(self, leg: Leg, lengths: Sequence[int]) -> None:
        """Checks that translations into a common language are not too long for the model that goes on."""
        for index, length in enumerate(lengths):
            if length > self._most_subwords(leg):
                problem = f"its translation on the way has {length} subwords: too long to go on"
                raise RequestError("invalid", f"text {index}: {problem}", index=index)

    async def _translate(
        self, body: RequestBody, client: str, disconnected: Disconnected
    ) -> dict[str, object]:
        search = self._search(body)
        if body.source != AUTO:
            route = self.models.route(body.target, body.source)
            return {"translations": await self._by_route(body, route, search, client, disconnected)}
        translations, detected = [as_it_is(text, body) for text in body.all], list[dict[str, object] | None]()
        routes: dict[Route, list[int]] = {}
        for place, text in enumerate(body.all):
            detection, found = await self.resolve_route(text, AUTO, body.target)
            detected.append(None if detection is None else detection._asdict())
            if found is not None:
                routes.setdefault(found, []).append(place)
        for route, places in routes.items():
            part = body.model_copy(update={"text": None, "texts": [body.all[place] for place in places]})
            try:
                answers = await self._by_route(part, route, search, client, disconnected)
            except TextFailedError as error:
                raise TextFailedError(places[error.index]) from error.__cause__
            except RequestError as error:
                raise error if error.index is None else error.of_text(places[error.index]) from None
            for place, answer in zip(places, answers, strict=True):
                translations[place] = answer
        return {"translations": translations, "detected": detected if body.text is None else detected[0]}

    async def _by_route(
        self, body: RequestBody, route: Route, search: Search, client: str, disconnected: Disconnected
    ) -> list[dict[str, object]]:
        if search.alignment and (why := self.models.why_not_aligned(route)):
            raise RequestError("invalid", f"alignment: {why}")
        translate = self._by_sentences if body.sentences else self._by_lines
        return await translate(body, route, search, client, disconnected)

    async def _by_sentences(
        self, body: RequestBody, route: Route, search: Search, client: str, disconnected: Disconnected
    ) -> list[dict[str, object]]:
        in_order = self.models.reads_in_order(route)
        split = await self.run_in_worker(partial(SplitTexts.of, body.all, self.splitter(route), in_order))
        try:
            translations = await self.translate_sentences(
                split.sentences, route, search.n_best, client, disconnected, search, split.starts
            )
        except TextFailedError as error:
            raise TextFailedError(split.owners[error.index]) from error.__cause__
        language = body.target or target_of(route)
        told = {"scores": body.n_best is not None, "alignment": body.alignment}
        return split.answers(translations, language, **told)

    async def _by_lines(
        self, body: RequestBody, route: Route, search: Search, client: str, disconnected: Disconnected
    ) -> list[dict[str, object]]:
        texts = [TextLines.of(text) for text in body.all]
        translated: dict[LinePosition, Translation] = {}
        places, starts = list[LinePosition](), set[int]()
        for place in places_of(texts):
            if not is_blank(line_at(texts, place)):
                places.append(place)
            else:
                starts.add(len(places))  # an empty line ends a document
        if places:
            self.batcher.require_room(len(places), client)
            lines = [line_at(texts, place) for place in places]
            lengths = await self._fitting_lengths(route[0], lines, places, texts)
            try:
                translations = await self._along(lines, lengths, route, search, client, disconnected, starts)
            except TextFailedError as error:
                raise TextFailedError(places[error.index].text) from error.__cause__
            translated = dict(zip(places, translations, strict=True))
        told = partial(text_record, scores=body.n_best is not None, alignment=search.alignment)
        return [told(text, index, translated) for index, text in enumerate(texts)]

    def _most_subwords(self, leg: Leg) -> int:
        return min(self.limits.subwords, self.models.most_subwords(leg))

    @property
    def most_beam(self) -> int:
        """The largest beam, and number of translations of a text, that a request can ask for."""
        return max(self.limits.beam, self.models.search.beam)

    def _search(self, body: RequestBody) -> Search:
        beam, n_best = body.beam or self.models.search.beam, body.n_best or 1
        if beam > self.most_beam:
            raise RequestError("invalid", f"beam: at most {self.most_beam}, but is {beam}")
        if n_best > beam:
            raise RequestError("invalid", f"n_best: at most the beam ({beam}), but is {n_best}")
        limits = {name: getattr(body, name) for name in ("max_length_ratio", "max_length_extra")}
        asked = list(zip(limits, limits.values(), self.models.longest, strict=True))
        for name, limit, most in asked:
            if limit is not None and limit > most:
                raise RequestError("invalid", f"{name}: at most {most:g}, but is {limit:g}")
        if not any(most if limit is None else limit for _, limit, most in asked):
            raise RequestError("invalid", f"{' and '.join(limits)} are both 0: no output would be allowed")
        return Search(beam, n_best, 0, body.alignment, *limits.values())

    async def _fitting_lengths(
        self, leg: Leg, lines: Sequence[str], places: Sequence[LinePosition], texts: Sequence[TextLines]
    ) -> list[int]:
        """Subwords of each line; `places` and `texts` are where it stands in the request."""
        most = self._most_subwords(leg)
        lengths = await self.run_in_worker(partial(self.models.lengths, leg, lines))
        for (index, number), length in zip(places, lengths, strict=True):
            if length > most:
                where = f"text {index}"
                if texts[index].breaks:
                    where += f", line {number + 1}"
                raise RequestError("invalid", f"{where}: {length} subwords, at most {most}", index=index)
        return lengths

    async def _answer(self, job: Job, disconnected: Disconnected) -> list[Translation]:
        """Wait for the model or for the end of the client, whichever comes first."""
        self.batcher.submit(job)
        try:
            return await unless_gone(asyncio.wrap_future(job.answer), disconnected)
        except DisconnectedError:
            self.metrics.cancelled.inc()
            raise
        finally:
            if not job.answer.done():
                self.batcher.drop(job)


def target_of(route: Route) -> str:
    """The language that comes out; empty = not known."""
    direction = route[-1].direction
    return "" if direction is None else direction.target
