"""Texts and documents, translated as clients of LibreTranslate expect it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import accumulate

from deepwire.data.languages import Direction
from deepwire.decoding.translation_io import Translation
from deepwire.errors import DeepwireError, UsageError
from deepwire.serve.document_translation import (
    DocumentRoute,
    DocumentTranslator,
    TranslatedDocument,
    Upload,
    beginning,
    plan_of,
    translate_plan,
)
from deepwire.serve.documents.document import Options
from deepwire.serve.documents.formats.hypertext import HtmlDocument
from deepwire.serve.documents.marked_text import PlainText, ReplacedText, unescaped
from deepwire.serve.documents.registry import require_reader
from deepwire.serve.documents.translation_plan import TranslationPlan
from deepwire.serve.libretranslate.fields import (
    AskedTranslation,
    invalid,
    known_language,
)
from deepwire.serve.libretranslate.language_codes import LanguageCodes, language_name, written_code
from deepwire.serve.model_pool import Route
from deepwire.serve.request import AUTO, RequestError
from deepwire.serve.service import Client, Detection, Service, likely_languages

_NOTHING = Detection("en", 0.0)


class LibreTranslator:
    """Translates for the interface of LibreTranslate.

    Args:
        service: Translates sentences.
        documents: Translates documents.
        cosmetics: Whether texts are corrected afterwards.

    Raises:
        UsageError: It is not known which languages the models translate.
    """

    def __init__(self, service: Service, documents: DocumentTranslator, *, cosmetics: bool) -> None:
        self._service, self._cosmetics = service, cosmetics
        self._routes = service.models.routes
        if not self._routes:
            raise UsageError(
                f"{service.models.name}: it is not known which languages it translates",
                "name the direction: de-en=MODEL",
            )
        labels = list(dict.fromkeys(label for direction in self._routes for label in direction))
        self.codes = LanguageCodes(labels)
        self._labels = sorted({self.codes.label(label) or label for label in labels}, key=language_name)
        self._documents = documents

    @property
    def first_target(self) -> str:
        """The language that a page may propose to translate into."""
        return next(iter(self._routes)).target

    def languages(self) -> list[dict[str, object]]:
        """The answer to GET /languages; a language is among its own targets."""
        return [
            {
                "code": written_code(label),
                "name": language_name(label),
                "targets": sorted(
                    {written_code(other) for other in self._labels if self._is_known(label, other)}
                ),
            }
            for label in self._labels
        ]

    def _is_known(self, source: str, target: str) -> bool:
        return source == target or Direction(source, target) in self._routes

    async def detect(self, text: str) -> list[dict[str, object]]:
        """The answer to POST /detect."""
        detections = await self._service.run_in_worker(partial(likely_languages, text, self._labels))
        return [_detected(detection) for detection in detections or [_NOTHING]]

    async def translate(self, asked: AskedTranslation, client: Client) -> dict[str, object]:
        """The answer to POST /translate.

        Raises:
            RequestError, DisconnectedError, TextFailedError: There is no such direction, or as
                `Service.translate_sentences`.
        """
        service, kind = self._service, HtmlDocument if asked.is_html else PlainText
        documents = await service.run_in_worker(lambda: [kind(text) for text in asked.texts])
        detected: list[Detection] | None = None
        sources = [asked.source] * len(asked.texts)
        if asked.source == AUTO:
            work = [partial(likely_languages, beginning(each), self._labels) for each in documents]
            likely = [await service.run_in_worker(each) for each in work]  # others come in between
            detected = [detections[0] if detections else _NOTHING for detections in likely]
            sources = [detections[0].language if detections else asked.target for detections in likely]
        routes = {source: self._route(source, asked.target) for source in sources}
        n_best = 1 + (0 if asked.is_html else asked.alternatives)
        candidates = [list(asked.texts) for _ in range(n_best)]
        untranslated: list[str] = []
        for source, route in routes.items():
            if route is None:
                continue
            places = [place for place, language in enumerate(sources) if language == source]
            part = [documents[place] for place in places]
            units = [unit for document in part for unit in document.units]
            starts = set(accumulate((len(document.units) for document in part), initial=0))
            plan = await service.run_in_worker(partial(plan_of, service, units, route, asked.target, starts))
            translations = await translate_plan(service, plan, route, n_best, client)
            for rank in range(n_best):
                written = partial(self._written, part, plan, translations, rank)
                for place, text in zip(places, await service.run_in_worker(written), strict=True):
                    candidates[rank][place] = text
            untranslated += plan.untranslated
        return _answer(asked, candidates, detected, untranslated)

    def _written(
        self,
        documents: Sequence[ReplacedText],
        plan: TranslationPlan,
        translations: Sequence[Translation],
        rank: int,
    ) -> list[str]:
        """The translation of each text; of every sentence the candidate of a rank, if it has so many."""
        chosen = [
            translation.candidates[rank if rank < len(translation.candidates) else 0]
            for translation in translations
        ]
        units = iter(plan.translated_units([one.text for one in chosen], [one.alignment for one in chosen]))
        texts = [document.text_with([next(units) for _ in document.units]) for document in documents]
        if not self._cosmetics:
            return texts
        return [
            corrected(document.source, text) if isinstance(document, PlainText) else text
            for document, text in zip(documents, texts, strict=True)
        ]

    async def translate_file(
        self, file: Upload, source_code: str, target_code: str, client: Client
    ) -> TranslatedDocument:
        """A translated document.

        Raises:
            RequestError, DisconnectedError, TextFailedError: It cannot be read, or as in `translate`.
        """
        auto = source_code.lower() == AUTO
        known = "" if auto else known_language(source_code, self.codes)
        target = known_language(target_code, self.codes)

        async def resolve(beginning: str) -> DocumentRoute:
            source = known
            if auto:
                detections = await self._service.run_in_worker(
                    partial(likely_languages, beginning, self._labels)
                )
                source = detections[0].language if detections else target
            return DocumentRoute(self._route(source, target), target, written_code(target))

        try:
            require_reader(file.name)
        except UsageError as error:
            raise invalid(f"file format not supported ({error.message})") from None
        try:
            return await self._documents.translate(file, Options(known, target), resolve, client)
        except DeepwireError as error:
            raise invalid(f"{error.message}") from None

    def _route(self, source: str, target: str) -> Route | None:
        """How to translate; None from a language into itself.

        Raises:
            RequestError: There is no way.
        """
        if source == target:
            return None
        route = self._routes.get(Direction(source, target))
        if route is None:
            to, from_ = (
                f"{language_name(language)} ({written_code(language)})" for language in (target, source)
            )
            raise RequestError("invalid", f"{to} is not available as a target language from {from_}")
        return route


def _detected(detection: Detection) -> dict[str, object]:
    return {"confidence": detection.confidence, "language": written_code(detection.language)}


def _answer(
    asked: AskedTranslation,
    candidates: Sequence[Sequence[str]],
    detected: Sequence[Detection] | None,
    untranslated: Sequence[str],
) -> dict[str, object]:
    """Lists where a list was sent; further fields only where they were asked for."""
    best, *others = candidates
    answer: dict[str, object] = {"translatedText": list(best) if asked.is_list else best[0]}
    if detected is not None:
        records = [*map(_detected, detected)]
        answer["detectedLanguage"] = records if asked.is_list else records[0]
    if asked.alternatives:
        by_text = [
            [
                text
                for text in dict.fromkeys(texts[place] for texts in others)
                if text.strip() and text != first
            ]
            for place, first in enumerate(best)
        ]
        answer["alternatives"] = by_text if asked.is_list else by_text[0]
    if untranslated:
        answer["untranslated"] = untranslated
    return answer


# The signs of other scripts belong to the same class as the others: none takes the place of the other.
_ENDS = (".。।۔։።။", "!！", "?？؟", ",，、،", ";；؛")
_GREEK_QUESTION = re.compile(r"[\u0370-\u03ff\u1f00-\u1fff][;\u037e]\s*\Z")
_ELLIPSIS = re.compile(r"(?:\.\.|…)\s*\Z")
_ENTITY = re.compile(r"&(#\d+;?|#[xX][0-9a-fA-F]+;?|\w+;)")


def corrected(source: str, translation: str) -> str:
    """The translation with the entities, repetitions, case and final punctuation that the source suggests."""
    if not source.strip() or not translation.strip():
        return translation
    if not _ENTITY.search(source):
        translation = unescaped(translation)
    translation = _without_repetition(source, translation)
    return _with_end(source, _with_case(source, translation))


def _without_repetition(source: str, translation: str) -> str:
    """One word of source that became the same word several times is one word."""
    words = translation.split()
    if len(source.split()) != 1 or len(words) < 2:
        return translation
    return words[0] if len({word.strip(".,;:!?").casefold() for word in words}) == 1 else translation


def _with_case(source: str, translation: str) -> str:
    if source.islower():
        return translation.lower()
    if source.isupper() and sum(map(str.isalpha, source)) > 1:
        return translation.upper()
    first, start = source.lstrip()[:1], len(translation) - len(translation.lstrip())
    letter = translation[start]
    if first.isupper() and letter.islower():
        return translation[:start] + letter.upper() + translation[start + 1 :]
    if first.islower() and letter.isupper() and not translation[start + 1 : start + 2].isupper():
        return translation[:start] + letter.lower() + translation[start + 1 :]
    return translation


def _with_end(source: str, translation: str) -> str:
    wanted, have = _end(source), _end(translation)
    if _class(wanted) == _class(have) or _ELLIPSIS.search(source) or _ELLIPSIS.search(translation):
        return translation
    body = translation.rstrip()
    space = translation[len(body) :]
    body = body[: len(body) - len(have)].rstrip() if len(body) > len(have) else body
    return body + (_class(wanted)[:1] if body.isascii() else wanted) + space


def _end(text: str) -> str:
    if _GREEK_QUESTION.search(text):
        return "?"
    last = text.rstrip()[-1:]
    return last if _class(last) else ""


def _class(sign: str) -> str:
    return next((signs for signs in _ENDS if sign and sign in signs), "")
