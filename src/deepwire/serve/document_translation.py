"""Documents, read in threads beside the model and translated a part at a time between those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_ulong, py_object, pythonapi
from pathlib import PurePath
from threading import Lock, get_ident
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from deepwire.decoding.translation_io import Translation
from deepwire.serve.documents.document import Document, Options, Piece
from deepwire.serve.documents.registry import read_document
from deepwire.serve.documents.translation_plan import TranslationPlan
from deepwire.serve.model_pool import Route, target_of, why_not_aligned
from deepwire.serve.service import Client, DisconnectedError, Service

_SAMPLE = 500  # units of a document that its language is told by
_THREADS = 4  # that read documents, each of another client; the model has to have the rest

_Result = TypeVar("_Result")


class Upload(NamedTuple):
    """A file that was sent."""

    name: str
    content: bytes


class TranslatedDocument(NamedTuple):
    """The answer to a document.

    Attributes:
        content: Of the file.
        target: The language of the translation; empty = not known.
        untranslated: Beginnings of pieces that are too long for the model: they stay as they are.
    """

    content: bytes
    target: str
    untranslated: Sequence[str] = ()


def translated_name(name: str, code: str) -> str:
    """The name of a translation into a language: `letter_de.docx` of `letter.docx`."""
    return f"{PurePath(name).stem}_{code}{PurePath(name).suffix}"


async def translate_plan(
    service: Service, plan: TranslationPlan, route: Route, n_best: int, client: Client
) -> list[Translation]:
    """Translations of the texts of a plan; what else is that of `Service.translate_sentences`."""
    usual = service.models.search
    aligned = plan.has_markup and not why_not_aligned(route)
    search = usual._replace(beam=max(n_best, usual.beam), n_best=n_best, alignment=aligned)
    return await service.translate_sentences(plan.texts, route, search, client, plan.starts)


def translated_units(
    plan: TranslationPlan, translations: Sequence[Translation], rank: int = 0
) -> list[list[Piece]]:
    """The units of a plan; of every sentence the candidate of a rank, if it has so many."""
    return plan.translated_units(
        [one.candidates[rank if rank < len(one.candidates) else 0] for one in translations]
    )


class DocumentTranslator:
    """Translates documents.

    Args:
        service: Translates sentences.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        # Reading a large document must not keep the texts of others from being split, nor their documents.
        self._run = ClientThreads(_THREADS).run

    async def translate(
        self,
        file: Upload,
        options: Options,
        resolve: Callable[[str], Awaitable[Route | None]],
        client: Client,
    ) -> TranslatedDocument:
        """A translated document.

        Args:
            file: The document.
            options: Its languages, where they are known.
            resolve: How to translate a document that begins with a text; None = it is in the target language.
            client: Who asks.

        Raises:
            DeepwireError: It cannot be read.
            RequestError, DisconnectedError: As `Service.translate_sentences`, or from `resolve`.
        """
        document = await self._run(lambda: read_document(file.name, file.content, options), client)
        route = await resolve(beginning(document))
        if route is None:
            return TranslatedDocument(file.content, options.target)
        into = target_of(route) or options.target
        plan = await self._run(lambda: self._service.plan(document.units, route, into, {0}), client)
        translations = await translate_plan(self._service, plan, route, 1, client)
        content = await self._run(lambda: document.render(translated_units(plan, translations)), client)
        return TranslatedDocument(content, into, plan.untranslated)


def beginning(document: Document) -> str:
    """Text of a document to tell its language by."""
    return " ".join(run.text for unit in document.units[:_SAMPLE] for run in unit)


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
