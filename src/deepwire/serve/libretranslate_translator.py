"""Texts and documents, translated as clients of LibreTranslate expect it, and its codes of languages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from deepwire.data.languages import Direction
from deepwire.data.text.language_guess import language_code
from deepwire.decoding.translation_io import Translation
from deepwire.errors import DeepwireError, UsageError
from deepwire.serve.document_translation import (
    DocumentTranslator,
    TranslatedDocument,
    Upload,
    beginning,
    plan_of,
    translate_plan,
    translated_units,
)
from deepwire.serve.documents.document import Options
from deepwire.serve.documents.hypertext import HtmlDocument
from deepwire.serve.documents.marked_text import PlainText, ReplacedText
from deepwire.serve.documents.registry import require_reader
from deepwire.serve.documents.translation_plan import TranslationPlan
from deepwire.serve.model_pool import Route
from deepwire.serve.request import AUTO, RequestError, printable, request_error
from deepwire.serve.service import Client, Detection, Service, likely_languages

_NAMES = """
    af=Afrikaans am=Amharic ar=Arabic as=Assamese az=Azerbaijani be=Belarusian bg=Bulgarian bn=Bengali
    bs=Bosnian ca=Catalan cs=Czech cy=Welsh da=Danish de=German el=Greek en=English eo=Esperanto es=Spanish
    et=Estonian eu=Basque fa=Persian fi=Finnish fr=French ga=Irish gl=Galician gu=Gujarati ha=Hausa he=Hebrew
    hi=Hindi hr=Croatian hu=Hungarian hy=Armenian id=Indonesian ig=Igbo is=Icelandic it=Italian ja=Japanese
    ka=Georgian kk=Kazakh km=Khmer kn=Kannada ko=Korean ky=Kyrgyz lb=Luxembourgish lo=Lao lt=Lithuanian
    lv=Latvian mg=Malagasy mk=Macedonian ml=Malayalam mn=Mongolian mr=Marathi ms=Malay mt=Maltese my=Burmese
    nb=Norwegian ne=Nepali nl=Dutch nn=Nynorsk oc=Occitan or=Odia pa=Punjabi pl=Polish ps=Pashto pt=Portuguese
    ro=Romanian ru=Russian sd=Sindhi si=Sinhala sk=Slovak sl=Slovenian so=Somali sq=Albanian sr=Serbian
    sv=Swedish sw=Swahili ta=Tamil te=Telugu tg=Tajik th=Thai ti=Tigrinya tl=Tagalog tr=Turkish tt=Tatar
    ug=Uyghur uk=Ukrainian ur=Urdu uz=Uzbek vi=Vietnamese xh=Xhosa yi=Yiddish yo=Yoruba yue=Cantonese
    zh=Chinese zu=Zulu
"""
_WRITTEN: Mapping[str, tuple[str, str]] = {
    **{code: (code, name) for code, name in (pair.split("=") for pair in _NAMES.split())},
    "pt-br": ("pt-BR", "Portuguese (Brazil)"),
    "zh": ("zh-Hans", "Chinese"),
    "zh-hant": ("zh-Hant", "Chinese (traditional)"),
}
_OTHER_SPELLINGS: Mapping[str, str] = {
    "pb": "pt-br",
    "zt": "zh-hant",
    "zh-hans": "zh",
    "zh-cn": "zh",
    "zh-sg": "zh",
    "zh-tw": "zh-hant",
    "zh-hk": "zh-hant",
}


def plain_code(label: str) -> str:
    """One spelling of a label, in lower case: `zh-hant` of `zt` and `zh_TW`, `de` of `deu` and `DE`."""
    lower = label.strip().lower().replace("_", "-")
    known = _OTHER_SPELLINGS.get(lower, lower)
    return known if known in _WRITTEN else language_code(known) if "-" not in known else known


class LanguageCodes:
    """The languages of a server.

    Args:
        labels: What its models call them.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self._labels: dict[str, str] = {}
        for label in labels:
            self._labels.setdefault(plain_code(label), label)
        for code, label in list(self._labels.items()):
            if code != "zh-hant":  # another script, and not what `zh` stands for
                self._labels.setdefault(code.partition("-")[0], label)

    def label(self, code: str) -> str | None:
        """The label that the models have for a code; None = there is no such language here."""
        return self._labels.get(plain_code(code))


def written_code(label: str) -> str:
    """The code of a language in an answer."""
    code = plain_code(label)
    return _WRITTEN.get(code, (code, ""))[0]


def language_name(label: str) -> str:
    """The English name of a language; its code where we know none."""
    code = plain_code(label)
    base = code.partition("-")[0]
    return _WRITTEN.get(code, _WRITTEN.get(base, ("", code)))[1]


_NOTHING = Detection("en", 0.0)
_SHOWN = 40


def invalid(text: str) -> RequestError:
    """The error for a request that clients have to mend."""
    return RequestError("invalid", f"Invalid request: {text}")


Text = Annotated[str, AfterValidator(printable)]


class AskedLanguages(BaseModel):
    """Languages as clients write them; the source may be `auto`."""

    source: str = Field(min_length=1)
    target: str = Field(min_length=1)


class AskedText(BaseModel):
    """A text, or a list of them, which is then answered by a list."""

    q: Text | list[Text]

    @property
    def texts(self) -> list[str]:
        """All of them."""
        return self.q if isinstance(self.q, list) else [self.q]


class AskedTranslation(AskedLanguages, AskedText):
    """A request for a translation, and for how many alternatives."""

    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0)


Asked = TypeVar("Asked", bound=BaseModel)


def read_asked(kind: type[Asked], values: Mapping[str, object]) -> Asked:
    """Reads the fields of a request; of languages and options an empty one is missing.

    Raises:
        RequestError: One is missing or something else.
    """
    given = {name: value for name, value in values.items() if name == "q" or value not in ("", None)}
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise invalid(request_error(error).message) from None


class LibreTranslator:
    """Translates for the interface of LibreTranslate.

    Args:
        service: Translates sentences.
        documents: Translates documents.

    Raises:
        UsageError: It is not known which languages the models translate.
    """

    def __init__(self, service: Service, documents: DocumentTranslator) -> None:
        self._service = service
        self._routes = service.models.routes
        if not self._routes:
            raise UsageError(
                f"{service.models.name}: it is not known which languages it translates",
                "name the direction: de-en=MODEL",
            )
        labels = list(dict.fromkeys(label for direction in self._routes for label in direction))
        self._codes = LanguageCodes(labels)
        self._labels = sorted({self._codes.label(label) or label for label in labels}, key=language_name)
        self._documents = documents

    def _label(self, code: str) -> str:
        """The label that the models have for a language."""
        label = self._codes.label(code)
        if label is None:
            raise RequestError("invalid", f"{printable(code[:_SHOWN])} is not supported")
        return label

    def _languages(self, asked: AskedLanguages) -> tuple[str, str]:
        """The labels of both languages; `auto` for a source that is to be found out."""
        source = AUTO if asked.source.lower() == AUTO else self._label(asked.source)
        return source, self._label(asked.target)

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
        service, kind = self._service, HtmlDocument if asked.format == "html" else PlainText
        from_, target = self._languages(asked)
        documents = await service.run_in_worker(lambda: [kind(text) for text in asked.texts])
        detected: list[Detection] | None = None
        sources = [from_] * len(asked.texts)
        if from_ == AUTO:
            work = [partial(likely_languages, beginning(each), self._labels) for each in documents]
            likely = [await service.run_in_worker(each) for each in work]  # others come in between
            detected = [detections[0] if detections else _NOTHING for detections in likely]
            sources = [detections[0].language if detections else target for detections in likely]
        routes = {source: self._route(source, target) for source in sources}
        n_best = 1 + (0 if asked.format == "html" else asked.alternatives)
        candidates = [list(asked.texts) for _ in range(n_best)]
        untranslated: list[str] = []
        for source, route in routes.items():
            if route is None:
                continue
            places = [place for place, language in enumerate(sources) if language == source]
            part = [documents[place] for place in places]
            units = [unit for document in part for unit in document.units]
            starts = set(accumulate((len(document.units) for document in part), initial=0))
            plan = await service.run_in_worker(partial(plan_of, service, units, route, target, starts))
            translations = await translate_plan(service, plan, route, n_best, client)
            for rank in range(n_best):
                written = partial(_written, part, plan, translations, rank)
                for place, text in zip(places, await service.run_in_worker(written), strict=True):
                    candidates[rank][place] = text
            untranslated += plan.untranslated
        return _answer(asked, candidates, detected, untranslated)

    async def translate_file(self, file: Upload, asked: AskedLanguages, client: Client) -> TranslatedDocument:
        """A translated document.

        Raises:
            RequestError, DisconnectedError, TextFailedError: It cannot be read, or as in `translate`.
        """
        source, target = self._languages(asked)
        known = "" if source == AUTO else source

        try:
            require_reader(file.name)
        except UsageError as error:
            raise invalid(f"file format not supported ({error.message})") from None

        async def resolve(beginning: str) -> Route | None:
            source = known
            if not source:
                work = partial(likely_languages, beginning, self._labels)
                detections = await self._service.run_in_worker(work)
                source = detections[0].language if detections else target
            return self._route(source, target)

        try:
            return await self._documents.translate(file, Options(known, target), resolve, client)
        except DeepwireError as error:
            raise invalid(f"{error.message}") from None

    def _route(self, source: str, target: str) -> Route | None:
        """How to translate; None from a language into itself."""
        if source == target:
            return None
        route = self._routes.get(Direction(source, target))
        if route is None:
            to, from_ = (
                f"{language_name(language)} ({written_code(language)})" for language in (target, source)
            )
            raise RequestError("invalid", f"{to} is not available as a target language from {from_}")
        return route


def _written(
    documents: Sequence[ReplacedText], plan: TranslationPlan, translations: Sequence[Translation], rank: int
) -> list[str]:
    """The translation of each text; of every sentence the candidate of a rank, if it has so many."""
    units = iter(translated_units(plan, translations, rank))
    return [document.text_with([next(units) for _ in document.units]) for document in documents]


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
    answer: dict[str, object] = {"translatedText": list(best) if isinstance(asked.q, list) else best[0]}
    if detected is not None:
        records = [*map(_detected, detected)]
        answer["detectedLanguage"] = records if isinstance(asked.q, list) else records[0]
    if asked.alternatives:
        by_text = [
            [
                text
                for text in dict.fromkeys(texts[place] for texts in others)
                if text.strip() and text != first
            ]
            for place, first in enumerate(best)
        ]
        answer["alternatives"] = by_text if isinstance(asked.q, list) else by_text[0]
    if untranslated:
        answer["untranslated"] = untranslated
    return answer
