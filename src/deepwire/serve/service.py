"""A request from its checked body to its answer: languages, subwords, the queue, time, clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import deepwire
from deepwire.data.context import NO_CONTEXT
from deepwire.data.text.language_guess import language_shares
from deepwire.data.text.pairs import is_blank
from deepwire.data.text.sentences import SentenceSplitter, TextSegments
from deepwire.decoding.document_context import Documents, Wave
from deepwire.decoding.text_alignment import TextAlignment, composed
from deepwire.decoding.translation_io import Candidate, Request, Translation
from deepwire.ops.allocator import Surplus
from deepwire.serve.batcher import Batcher, Job, Metrics
from deepwire.serve.documents.document import Run, Unit
from deepwire.serve.documents.translation_plan import Sentences, TranslationPlan
from deepwire.serve.model_pool import ModelPool, Route, Search, target_of, why_not_aligned
from deepwire.serve.request import AUTO, Limits, RequestBody, RequestError, TextBody, TextLines, renumbered

_PART = 256  # sentences of a long text that wait at a time
_ENOUGH = 5000  # characters of a text to tell its language by
_MAX_DETECTIONS, _MIN_SHARE = 3, 0.01

_EMPTY = (Candidate("", (), 0.0, 0.0),)

_Result = TypeVar("_Result")
Record = dict[str, object]


class DisconnectedError(Exception):
    """The client has gone away."""


class Client(NamedTuple):
    """Who waits for an answer.

    Attributes:
        name: Clients take turns by it.
        gone: Returns when the client has gone away.
    """

    name: str
    gone: Callable[[], Awaitable[None]]

    async def wait_for(self, result: asyncio.Future[_Result]) -> _Result:
        """A result, or the end of the client, whichever comes first; what works on the result goes on.

        Raises:
            DisconnectedError: The client has gone away.
        """
        leaving = asyncio.ensure_future(self.gone())
        either: list[asyncio.Future[_Result] | asyncio.Future[None]] = [result, leaving]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise DisconnectedError
            return result.result()
        finally:
            leaving.cancel()


class Detection(NamedTuple):
    """A language, as the caller writes it, and how sure that is, from 0 to 100."""

    language: str
    confidence: float


def likely_languages(text: str, among: Iterable[str]) -> list[Detection]:
    """The likely languages of a text, best first, three at most; none where there is no letter to tell by."""
    shares = language_shares(text[:_ENOUGH], sorted(among))
    detections = [Detection(label, round(100 * share, 1)) for label, share in shares.items()]
    likely = [one for one in detections[1:_MAX_DETECTIONS] if one.confidence >= 100 * _MIN_SHARE]
    return [*detections[:1], *likely]


class Service:
    """Translates for many clients.

    Args:
        models: What translates.
        limits: What a client can ask for.

    Attributes:
        requests: How many translations clients wait for.
        stopping: Whether no more are taken.
    """

    def __init__(self, models: ModelPool, limits: Limits) -> None:
        self.models, self.limits, self.metrics = models, limits, Metrics()
        self.requests, self.stopping = 0, False
        self.batcher = Batcher(limits, self.metrics, tidy=Surplus().check)
        # One thread: long texts of one client must not take the cores from the model.
        self._segmenting = ThreadPoolExecutor(1, "segmenting")

    def start(self) -> None:
        """Begin to translate."""
        self.batcher.start()

    def close(self, seconds: float) -> None:
        """Stop translating; wait at most so long for the model."""
        self._segmenting.shutdown(wait=False, cancel_futures=True)
        self.batcher.close(seconds)

    def facts(self) -> Record:
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
                "subwords": self.models.fewest_subwords,
                "beam": self.most_beam,
                "body_bytes": limits.body_bytes,
            },
        }

    @property
    def most_beam(self) -> int:
        """The largest beam, and number of translations of a text, that a request can ask for."""
        return max(self.limits.beam, self.models.search.beam)

    @asynccontextmanager
    async def in_time(self, seconds: float) -> AsyncIterator[None]:
        """Within the block a request is worked on, for at most these seconds; a stopping server waits for it.

        Raises:
            RequestError: It took longer.
        """
        self.requests += 1
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            said = f"not translated within {seconds:g} s"
            raise RequestError("out_of_time", said, headers={"Retry-After": "10"}) from None
        finally:
            self.requests -= 1

    async def run_in_worker(self, work: Callable[[], _Result]) -> _Result:
        """The result of work on texts that is done beside the model, and does not stop other requests."""
        return await asyncio.get_running_loop().run_in_executor(self._segmenting, work)

    def source_languages(self, target: str | None) -> frozenset[str]:
        """The languages that are translated into this one, and itself.

        Raises:
            RequestError: It is not known which languages there are, or nothing is translated into `target`.
        """
        directions = [direction for direction in self.models.routes if target in (None, direction.target)]
        if not directions:
            reason = (
                "the languages of the model are not known" if target is None else f"nothing into {target!r}"
            )
            raise RequestError("invalid", f"{AUTO} has no languages to choose from: {reason}")
        targets = {direction.target for direction in directions}
        sources = frozenset(direction.source for direction in directions)
        return sources | (targets if len(targets) == 1 else frozenset())

    async def detect(self, body: TextBody) -> Record:
        """The likely languages of each text.

        Raises:
            RequestError: As `source_languages`, or there was no time for it.
        """
        among = self.source_languages(self.models.label(body.target))
        async with self.in_time(self.limits.request_seconds):
            detections = [  # one after the other, so that others come in between
                await self.run_in_worker(partial(likely_languages, text, among)) for text in body.all
            ]
        return {"detections": [[detection._asdict() for detection in likely] for likely in detections]}

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
        among = self.source_languages(target)
        likely = await self.run_in_worker(partial(likely_languages, text, among))
        if not likely:
            return None, None
        language = likely[0].language
        only = {direction.target for direction in self.models.routes}
        if language == target or (target is None and only == {language}):
            return likely[0], None
        return likely[0], self.models.route(target, language)

    def plan(
        self, units: Sequence[Unit], route: Route, language: str, starts: Collection[int]
    ) -> TranslationPlan:
        """The texts to translate into a language, as the first model of a route reads them.

        `starts` are the units that begin a document.
        """
        leg = route[0]
        source = "" if leg.direction is None else leg.direction.source
        splitter = SentenceSplitter(source, leg.model.lengths, leg.model.most_subwords)
        in_order = any(each.model.context.used for each in route)
        return TranslationPlan(units, splitter, language, starts if in_order else None)

    async def translate(self, body: RequestBody, client: Client) -> Record:
        """The answer to a request.

        Raises:
            RequestError: It asks for what cannot be, there is no time or room for it, or the model failed.
            DisconnectedError: Nobody waits for the answer any more.
        """
        async with self.in_time(self.limits.request_seconds):
            search = self._search(body)
            if body.source != AUTO:
                route = self.models.route(body.target, body.source)
                return {"translations": await self._by_route(body, route, search, client)}
            return await self._translate_detected(body, search, client)

    async def _translate_detected(self, body: RequestBody, search: Search, client: Client) -> Record:
        """The answer to texts that may each be in another language."""
        translations = [_as_it_is(text, body) for text in body.all]
        detected: list[Record | None] = []
        routes: dict[Route, list[int]] = {}
        for place, text in enumerate(body.all):
            detection, found = await self.resolve_route(text, AUTO, body.target)
            detected.append(None if detection is None else detection._asdict())
            if found is not None:
                routes.setdefault(found, []).append(place)
        for route, places in routes.items():
            part = body.model_copy(update={"text": None, "texts": [body.all[place] for place in places]})
            with renumbered(places):
                answers = await self._by_route(part, route, search, client)
            for place, answer in zip(places, answers, strict=True):
                translations[place] = answer
        return {"translations": translations, "detected": detected if body.text is None else detected[0]}

    async def _by_route(
        self, body: RequestBody, route: Route, search: Search, client: Client
    ) -> list[Record]:
        if search.alignment and (why := why_not_aligned(route)):
            raise RequestError("invalid", f"alignment: {why}")
        translate = self._by_sentences if body.sentences else self._by_lines
        return await translate(body, route, search, client)

    async def _by_sentences(
        self, body: RequestBody, route: Route, search: Search, client: Client
    ) -> list[Record]:
        units = [[Run(text.replace("\0", " "))] for text in body.all]
        language = body.target or target_of(route)
        plan = await self.run_in_worker(partial(self.plan, units, route, language, range(len(units))))
        owners = {
            text: place
            for place, one in enumerate(plan.sentences)
            for text in one.texts
            if isinstance(text, int)
        }
        with renumbered(owners):
            translations = await self.translate_sentences(plan.texts, route, search, client, plan.starts)
        told = {"scores": body.n_best is not None, "alignment": body.alignment}
        return [_sentences_record(one, plan.texts, translations, language, **told) for one in plan.sentences]

    async def _by_lines(
        self, body: RequestBody, route: Route, search: Search, client: Client
    ) -> list[Record]:
        texts = [TextLines.of(text) for text in body.all]
        places: list[tuple[int, int]] = []  # text and line
        starts: set[int] = set()
        for index, text in enumerate(texts):
            for number, line in enumerate(text.lines):
                if is_blank(line):
                    starts.add(len(places))  # an empty line ends a document
                else:
                    places.append((index, number))
        translated: dict[tuple[int, int], Translation] = {}
        if places:
            self.batcher.require_room(len(places), client.name)
            lines = [texts[index].lines[number] for index, number in places]
            lengths = await self.run_in_worker(partial(route[0].model.lengths, lines))
            most = route[0].model.most_subwords
            for (index, number), length in zip(places, lengths, strict=True):
                if length > most:
                    where = f"text {index}" + (f", line {number + 1}" if texts[index].breaks else "")
                    raise RequestError("invalid", f"{where}: {length} subwords, at most {most}", index=index)
            with renumbered([index for index, _ in places]):
                translations = await self._along(lines, lengths, route, search, client, starts)
            translated = dict(zip(places, translations, strict=True))
        told = {"scores": body.n_best is not None, "alignment": search.alignment}
        return [
            _text_record(text, [translated.get((index, number)) for number in range(len(text.lines))], **told)
            for index, text in enumerate(texts)
        ]

    async def translate_sentences(
        self,
        sentences: Sequence[str],
        route: Route,
        search: Search,
        client: Client,
        starts: Collection[int] | None = None,
    ) -> list[Translation]:
        """Translations of sentences that are not too long, however many there are: a part after the other.

        Args:
            sentences: As `plan` cuts them.
            route, search: How.
            client: Who asks.
            starts: The places of those that begin a document; None: each stands for itself.

        Raises:
            RequestError, DisconnectedError: As in `translate`.
        """
        translated: list[Translation] = []
        documents = None if starts is None else [Documents(leg.model.context) for leg in route]
        for first in range(0, len(sentences), _PART):
            part = sentences[first : first + _PART]
            self.batcher.require_room(len(part), client.name)
            lengths = await self.run_in_worker(partial(route[0].model.lengths, part))
            begins = None if starts is None else {place - first for place in starts}
            with renumbered(range(first, len(sentences))):
                translated += await self._along(part, lengths, route, search, client, begins, documents)
        return translated

    async def _along(
        self,
        texts: Sequence[str],
        lengths: Sequence[int],
        route: Route,
        search: Search,
        client: Client,
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
                lengths = await self.run_in_worker(partial(leg.model.lengths, texts))
                for index, length in enumerate(lengths):
                    if length > leg.model.most_subwords:
                        said = f"its translation on the way has {length} subwords: too long to go on"
                        raise RequestError("invalid", f"text {index}: {said}", index=index)
            last = number == len(route) - 1
            leg_search = search._replace(model=leg.model, n_best=search.n_best if last else 1)
            requests = [Request(text, to=leg.to, from_=leg.from_) for text in texts]
            context = NO_CONTEXT if starts is None else leg.model.context
            if context.used:
                costs = [min(length * (context.source + 1), context.max_length) for length in lengths]
                read = Documents(context) if documents is None else documents[number]
                waves = read.waves(requests, starts or ())
                translations = await self._in_waves(read, waves, costs, leg_search, client)
            else:
                translations = await self._answer(Job(requests, lengths, leg_search, client.name), client)
            if number and search.alignment:
                translations = [_by_way_of(*pair) for pair in zip(before, translations, strict=True)]
        return translations

    async def _in_waves(
        self,
        documents: Documents,
        waves: Iterator[Wave],
        lengths: Sequence[int],
        search: Search,
        client: Client,
    ) -> list[Translation]:
        """Lines of documents, of which some wait for the translations of others."""
        translations: dict[int, Translation] = {}
        for wave in waves:
            job = Job(wave.requests, [lengths[place] for place in wave.places], search, client.name)
            with renumbered(wave.places):
                answers = await self._answer(job, client)
            documents.note(answer.text for answer in answers)
            translations |= zip(wave.places, answers, strict=True)
        return [translations[place] for place in range(len(translations))]

    def _search(self, body: RequestBody) -> Search:
        beam, n_best = body.beam or self.models.search.beam, body.n_best or 1
        if beam > self.most_beam:
            raise RequestError("invalid", f"beam: at most {self.most_beam}, but is {beam}")
        if n_best > beam:
            raise RequestError("invalid", f"n_best: at most the beam ({beam}), but is {n_best}")
        return Search(self.models.search.model, beam, n_best, body.alignment)

    async def _answer(self, job: Job, client: Client) -> list[Translation]:
        """Wait for the model or for the end of the client, whichever comes first."""
        self.batcher.submit(job)
        try:
            return await client.wait_for(asyncio.wrap_future(job.answer))
        finally:
            if not job.answer.done():
                self.batcher.drop(job)


def _by_way_of(first: Translation, second: Translation) -> Translation:
    """A translation of the best translation of a text, aligned with the text itself."""
    before = first.candidates[0].alignment
    candidates = tuple(
        replace(candidate, alignment=composed(before, candidate.alignment))
        if before and candidate.alignment
        else candidate
        for candidate in second.candidates
    )
    return replace(second, candidates=candidates)


def _candidate_record(candidate: Candidate, *, scores: bool, alignment: bool) -> Record:
    record: Record = {"text": candidate.text}
    if scores:
        record |= {"score": candidate.score, "log_probability": candidate.log_probability}
    if alignment:
        links = () if candidate.alignment is None else candidate.alignment.links
        record["alignment"] = [list(link) for link in links]
    return record


def _record(candidates: Sequence[Candidate], *, scores: bool, alignment: bool) -> Record:
    """The best of some candidates; with scores, all of them too."""
    best = _candidate_record(candidates[0], scores=False, alignment=alignment)
    if scores:
        best["candidates"] = [_candidate_record(one, scores=True, alignment=alignment) for one in candidates]
    return best


def _text_record(
    text: TextLines, translations: Sequence[Translation | None], *, scores: bool, alignment: bool
) -> Record:
    """A translation as JSON, of a text of several lines with the line breaks of the text.

    With scores, one line has its candidates, and several have a record each under `lines`: the translation of
    a line does not depend on the others. An alignment counts the words of the whole text.
    """
    candidates = [_EMPTY if one is None else one.candidates for one in translations]
    lines = [_record(one, scores=scores, alignment=alignment) for one in candidates]
    if len(lines) == 1:
        return lines[0]
    best = [one[0] for one in candidates]
    whole: Record = {"text": text.joined([candidate.text for candidate in best])}
    if alignment:
        whole["alignment"] = _whole_alignment(text.lines, best)
    return {**whole, "lines": lines} if scores else whole


def _whole_alignment(lines: Sequence[str], best: Sequence[Candidate]) -> list[list[int]]:
    links, counts = [], [0, 0]
    for line, candidate in zip(lines, best, strict=True):
        for source, target in () if candidate.alignment is None else candidate.alignment.links:
            links.append([source + counts[0], target + counts[1]])
        counts = [counts[0] + len(line.split()), counts[1] + len(candidate.text.split())]
    return links


def _as_it_is(text: str, body: RequestBody) -> Record:
    """The answer to a text that is in the target language already, or in none."""
    only = Candidate(text, (), 0.0, 0.0, TextAlignment.copied(text))
    scores = body.n_best is not None and not body.sentences
    record = _record([only], scores=scores, alignment=body.alignment)
    return record | ({"sentences": [], "gaps": [text]} if body.sentences else {})


def _sentences_record(
    sentences: Sentences,
    sources: Sequence[str],
    translations: Sequence[Translation],
    language: str,
    *,
    scores: bool,
    alignment: bool,
) -> Record:
    """The answer to a text of sentences; `sources` and `translations` are those of all texts."""
    records: list[Record] = []
    for text in sentences.texts:
        if isinstance(text, str):
            records.append({"source": text, "text": text, "untranslated": True})
        else:
            said = _record(translations[text].candidates, scores=scores, alignment=alignment)
            records.append({"source": sources[text], **said})
    segments = TextSegments((), sentences.gaps)
    whole = segments.joined([str(record["text"]) for record in records], language)
    return {"text": whole, "sentences": records, "gaps": segments.gaps_for(language)}
