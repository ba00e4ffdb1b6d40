"""Documents, translated sentence by sentence between those of other clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import PurePath
from typing import NamedTuple, TypeVar

from deepwire.documents.document import Document, Options
from deepwire.documents.registry import read_document, require_reader
from deepwire.documents.translation_plan import TranslationPlan
from deepwire.serving.model_pool import Route
from deepwire.serving.service import Gone, Service

_SAMPLE = 500  # units of a document that its language is told by
_Result = TypeVar("_Result")


class Upload(NamedTuple):
    """A file that was sent, or is sent back."""

    name: str
    content: bytes


class Way(NamedTuple):
    """How a document is translated.

    Attributes:
        route: The models; None = it is in the target language already.
        target: The language of the translation; empty = not known.
        code: How the name of the translation ends: `de` makes `letter_de.docx` of `letter.docx`.
    """

    route: Route | None
    target: str
    code: str


class DocumentTranslator:
    """Translates documents.

    Args:
        service: Translates sentences.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        # Reading a large document must not keep the texts of others from being split.
        self._reading = ThreadPoolExecutor(1, "reading")

    async def translate(
        self,
        file: Upload,
        options: Options,
        way: Callable[[str], Awaitable[Way]],
        client: str,
        gone: Gone,
    ) -> Upload:
        """A translated document.

        Args:
            file: The document.
            options: Its languages, where they are known.
            way: How to translate a document that begins with this text.
            client, gone: As in `Service.translate`.

        Raises:
            DeepwireError: It cannot be read.
            RequestError, GoneError, TextFailedError: As `Service.translate_sentences`; and what `way` raises.
        """
        require_reader(file.name)
        document = await self._beside(partial(read_document, file.name, file.content, options))
        route, target, code = await way(_beginning(document))
        stem, ending = PurePath(file.name).stem, PurePath(file.name).suffix
        name = f"{stem}_{code}{ending}"
        if route is None:
            return Upload(name, file.content)
        splitter = self._service.splitter(route)
        plan = await self._beside(partial(TranslationPlan, document.units, splitter, target))
        translations = await self._service.translate_sentences(plan.texts, route, 1, client, gone)
        best = [translation.text for translation in translations]
        return Upload(name, await self._beside(lambda: document.written(plan.finished(best))))

    async def _beside(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._reading, work)


def _beginning(document: Document) -> str:
    return " ".join(run.text for unit in document.units[:_SAMPLE] for run in unit)
