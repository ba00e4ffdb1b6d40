"""Documents, read in threads beside the model and translated a part at a time between those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_ulong, py_object, pythonapi
from pathlib import PurePath
from threading import Lock, get_ident
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from deepwire.decoding.translation_io import Translation
from deepwire.serve.documents.document import Document, Options, Piece, Unit
from deepwire.serve.documents.registry import read_document, require_reader
from deepwire.serve.documents.translation_plan import TranslationPlan
from deepwire.serve.model_pool import Route
from deepwire.serve.served_model import Search
from deepwire.serve.service import Client, DisconnectedError, Service

_SAMPLE = 500  # units of a document that its language is told by
_THREADS = 4  # that read documents, each of another client; the model has to have the rest


class Upload(NamedTuple):
    """A file that was sent."""

    name: str
    content: bytes


class TranslatedDocument(NamedTuple):
    """The answer to a document.

    Attributes:
        name, content: The file.
        untranslated: Beginnings of pieces that are too long for the model: they stay as they are.
    """

    name: str
    content: bytes
    untranslated: Sequence[str] = ()


class DocumentRoute(NamedTuple):
    """How a document is translated.

    Attributes:
        route: The models; None = it is in the target language already.
        target: The language of the translation; empty = not known.
        code: How the name of the translation ends: `de` makes `letter_de.docx` of `letter.docx`.
    """

    route: Route | None
    target: str
    code: str


def plan_of(
    service: Service, units: Sequence[Unit], route: Route, language: str, starts: Collection[int]
) -> TranslationPlan:
    """The plan for units of documents; `starts` are the units that begin one."""
    given = starts if service.models.reads_in_order(route) else None
    return TranslationPlan(units, service.splitter(route), language, given)


async def translate_plan(
    service: Service,
    plan: TranslationPlan,
    route: Route,
    n_best: int,
    client: Client,
) -> list[Translation]:
    """Translations of the texts of a plan; what else is that of `Service.translate_sentences`."""
    aligned = plan.has_markup and not service.models.why_not_aligned(route)
    search = Search(max(n_best, service.models.search.beam), n_best, alignment=aligned)
    return await service.translate_sentences(plan.texts, route, search, client, plan.starts)


def best_units(plan: TranslationPlan, translations: Sequence[Translation]) -> list[list[Piece]]:
    """The units of a plan with the best translations."""
    best = [translation.candidates[0] for translation in translations]
    alignments = [candidate.alignment for candidate in best]
    return plan.translated_units([candidate.text for candidate in best], alignments)


class DocumentTranslator:
    """Translates documents.

    Args:
        service: Translates sentences.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        # Reading a large document must not keep the texts of others from being split, nor their documents.
        self._threads = ClientThreads(_THREADS)

    async def translate(
        self,
        file: Upload,
        options: Options,
        resolve: Callable[[str], Awaitable[DocumentRoute]],
        client: Client,
    ) -> TranslatedDocument:
        """A translated document.

        Args:
            file: The document.
            options: Its languages, where they are known.
            resolve: How to translate a document that begins with this text.
            client: Who asks.

        Raises:
            DeepwireError: It cannot be read.
            RequestError, DisconnectedError, TextFailedError: As `Service.translate_sentences`, or from
                `resolve`.
        """
        require_reader(file.name)
        document = await self._threads.run(lambda: read_document(file.name, file.content, options), client)
        route, target, code = await resolve(beginning(document))
        name = f"{PurePath(file.name).stem}_{code}{PurePath(file.name).suffix}"
        if route is None:
            return TranslatedDocument(name, file.content)
        plan = await self._threads.run(
            lambda: plan_of(self._service, document.units, route, target, {0}), client
        )
        translations = await translate_plan(self._service, plan, route, 1, client)
        content = await self._threads.run(lambda: document.render(best_units(plan, translations)), client)
        return TranslatedDocument(name, content, plan.untranslated)


def beginning(document: Document) -> str:
    """Text of a document to tell its language by."""
    return " ".join(run.text for unit in document.units[:_SAMPLE] for run in unit)


_Result = TypeVar("_Result")


class ClientThreads:
    """A few threads, of which a client has one at a time.

    Args:
        most: Threads of all clients.
    """

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(most, "client")
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    async def run(self, work: Callable[[], _Result], client: Client) -> _Result:
        """The result of work, in a thread; it is begun only if it is still wanted when it is its turn.

        Work whose client has gone away, or whose time is over, ends at its next step in Python. Until then
        the client has no other thread.

        Raises:
            DisconnectedError: The client has gone away.
        """
        turn = self._turns.setdefault(client.name, asyncio.Lock())
        changing, thread, given_up, is_turn = Lock(), 0, False, False

        def begin() -> _Result:
            nonlocal thread
            with changing:
                if given_up:
                    raise DisconnectedError
                thread = get_ident()
            try:
                return work()
            finally:
                with changing:
                    thread = 0

        async def in_turn() -> _Result:
            nonlocal is_turn
            async with turn:
                is_turn = True
                return await asyncio.get_running_loop().run_in_executor(self._threads, begin)

        # A task of its own: it keeps the turn until the thread has ended, also when nobody waits for it.
        result = asyncio.ensure_future(in_turn())
        result.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await client.wait_for(result)
        finally:
            with changing:
                given_up = True
                if thread:  # readers of documents, some not ours, have no place to ask whether to go on
                    pythonapi.PyThreadState_SetAsyncExc(c_ulong(thread), py_object(DisconnectedError))
            if not is_turn:
                result.cancel()
