"""The interface of LibreTranslate: its codes of languages, fields of requests, answers and addresses."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl, quote

from pydantic import AfterValidator, BaseModel, Field, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import deepwire
from deepwire.data.languages import Direction
from deepwire.data.text.language_guess import language_code
from deepwire.decoding.translation_io import Translation
from deepwire.errors import DeepwireError, UsageError
from deepwire.serve.access import Token
from deepwire.serve.document_translation import (
    DocumentTranslator,
    Upload,
    beginning,
    translate_plan,
    translated_name,
    translated_units,
)
from deepwire.serve.documents.document import Options
from deepwire.serve.documents.hypertext import html_text
from deepwire.serve.documents.marked_text import ReplacedText, plain_text
from deepwire.serve.documents.registry import ENDINGS, require_reader
from deepwire.serve.documents.translation_plan import TranslationPlan
from deepwire.serve.model_pool import Route as ModelRoute
from deepwire.serve.request import AUTO, Limits, RequestError, printable, request_error
from deepwire.serve.routes import (
    OPEN,
    WATCHED,
    Endpoint,
    Site,
    application,
    client_of,
    content_type,
    error_response,
    own_routes,
    page_routes,
    read_body,
)
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


def labels_by_code(labels: Iterable[str]) -> dict[str, str]:
    """The labels that models have, by what `plain_code` makes of the codes of clients."""
    known: dict[str, str] = {}
    for label in labels:
        known.setdefault(plain_code(label), label)
    for code, label in list(known.items()):
        if code != "zh-hant":  # another script, and not what `zh` stands for
            known.setdefault(code.partition("-")[0], label)
    return known


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


def _read_asked(kind: type[Asked], values: Mapping[str, object]) -> Asked:
    """Reads the fields of a request; of languages and options an empty one is missing."""
    given = {name: value for name, value in values.items() if name == "q" or value not in ("", None)}
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise invalid(request_error(error).message) from None


OWN_FOLDER = "/deepwire"
"""Where deepwire's own interface is beside this one."""
_DOWNLOADS = "/download_file"
_OPEN = frozenset(
    {"/translate", "/detect", "/languages", "/translate_file", "/frontend/settings", "/suggest"}
    | {"/health", "/spec", "/docs"}
)
_FRONTEND_TIMEOUT = 500  # what clients expect
_MAX_FIELDS = 100
_MOST_KEPT, _KEEP_SECONDS = 100, 1800.0
"""How many translated documents are kept, and for how long."""


@dataclass
class _Fields:
    """The fields of a request by name, with those of the address that the body does not have; and a file."""

    values: dict[str, object] = field(default_factory=dict)
    file: Upload | None = None


async def _read_fields(request: Request, limits: Limits, most_bytes: int) -> _Fields:
    kind = content_type(request)
    body = await read_body(request, most_bytes, limits.body_seconds)
    fields = _Fields(dict(request.query_params))
    if kind == "application/json":
        fields.values |= _json_object(body)
        return fields
    if kind == "multipart/form-data":
        await _read_multipart(request, body, fields)
    else:
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError:
            raise invalid("not a form") from None
        fields.values |= dict(pairs)
    for name, value in fields.values.items():
        fields.values[name] = str(value).replace("\r\n", "\n").replace("\r", "\n")
    return fields


def _json_object(body: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("invalid", "Invalid JSON format") from None
    if not isinstance(parsed, dict):
        raise RequestError("invalid", "Invalid JSON format")
    return parsed


async def _read_multipart(request: Request, body: bytes, fields: _Fields) -> None:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    _, options = parse_options_header(request.headers["content-type"])
    if options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise invalid("not a form in UTF-8")
    try:
        parser = MultiPartParser(
            request.headers, stream(), max_files=1, max_fields=_MAX_FIELDS, max_part_size=len(body) + 1
        )
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError):  # no boundary, or no form within it
        raise invalid("not a form") from None
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name == "file":
                fields.file = Upload(value.filename or "", await value.read())
            await value.close()
        else:
            fields.values[name] = value


def libretranslate_site(service: Service, token: Token | None = None, *, files: bool = True) -> Site:
    """The interface of LibreTranslate; that of deepwire is under `/deepwire`, and the page at `/`.

    Args:
        service: Translates.
        token: What clients send as `api_key`, or as `Authorization: Bearer KEY`; None: no key is needed.
        files: Whether documents are translated.

    Raises:
        UsageError: It is not known which languages the models translate.
    """
    interface = _Interface(service, token, files=files)
    routes = [
        Route("/translate", interface.asked(interface.translate), methods=["POST"]),
        Route("/detect", interface.asked(interface.detect), methods=["POST"]),
        Route("/translate_file", interface.asked(interface.translate_file, files=True), methods=["POST"]),
        Route("/suggest", _suggest, methods=["POST"]),
        Route("/languages", partial(_told, interface.languages), methods=["GET"]),
        Route("/frontend/settings", partial(_told, interface.settings), methods=["GET"]),
        Route("/health", interface.health, methods=["GET"]),
        Route("/spec", partial(_told, _specification), methods=["GET"]),
        Route("/docs", _docs, methods=["GET"]),
        Route(_DOWNLOADS + "/{name}", interface.download, methods=["GET"]),
        *own_routes(service, interface.documents if files else None, OWN_FOLDER),
        *page_routes(OWN_FOLDER),
    ]
    return Site(
        application(routes, _refuse),
        frozenset(route.path for route in routes),
        OPEN | _OPEN,
        (f"{_DOWNLOADS}/",),
        _refuse,
        close=interface.kept.close,
    )


def _refuse(error: RequestError, path: str, request_id: str) -> Response:
    """Errors as `{"error": "text"}`; those of deepwire's own interface as there."""
    if path.startswith(f"{OWN_FOLDER}/") or path in WATCHED:
        return error_response(error, path, request_id)
    text = f"Slowdown: {error.message}" if error.status == 429 else error.message
    status = 400 if error.status == 422 else error.status
    return JSONResponse({"error": text}, status, error.headers)


def _specification() -> dict[str, Any]:
    """The description of the interface in OpenAPI 2."""
    found: dict[str, Any] = json.loads((files("deepwire.serve") / "page" / "interface.json").read_bytes())
    found["info"]["version"] = deepwire.__version__
    return found


async def _told(fact: Callable[[], object], _request: Request) -> Response:
    return JSONResponse(fact())


async def _suggest(_request: Request) -> Response:
    raise RequestError("forbidden", "Suggestions are disabled on this server.")


async def _docs(_request: Request) -> Response:
    from jinja2 import Environment, PackageLoader

    templates = Environment(loader=PackageLoader("deepwire.serve", "page"), autoescape=True)
    page = templates.get_template("interface.html")
    return HTMLResponse(page.render(paths=_specification()["paths"]))


Answer = Callable[[Request, _Fields], Awaitable[Response]]


class _Interface:
    """The endpoints; the arguments are those of `libretranslate_site`."""

    def __init__(self, service: Service, token: Token | None, *, files: bool) -> None:
        self._service, self._token, self._files = service, token, files
        self._routes = service.models.routes
        if not self._routes:
            raise UsageError(
                f"{service.models.name}: it is not known which languages it translates",
                "name the direction: de-en=MODEL",
            )
        labels = list(dict.fromkeys(label for direction in self._routes for label in direction))
        self._codes = labels_by_code(labels)
        self._labels = sorted({self._codes[plain_code(label)] for label in labels}, key=language_name)
        self.documents = DocumentTranslator(service)
        self.kept = KeptFiles()

    def asked(self, answer: Answer, *, files: bool = False) -> Endpoint:
        """An endpoint that reads fields and needs a key."""

        @wraps(answer)
        async def endpoint(request: Request) -> Response:
            limits = self._service.limits
            if files and not self._files:
                raise RequestError("forbidden", "Files translation are disabled on this server.")
            most = limits.file_bytes + limits.body_bytes if files else limits.body_bytes
            fields = await _read_fields(request, limits, most)
            self._require_key(fields, request.headers.get("authorization", ""))
            return await answer(request, fields)

        return endpoint

    def _require_key(self, fields: _Fields, header: str) -> None:
        """Checks that a request has a key, in a field or in its `Authorization` header, if one is needed."""
        key = fields.values.get("api_key")
        if self._token is None or self._token.admits(header.encode("latin-1")):
            return
        if not key and not header:
            raise RequestError("invalid", "Please contact the server operator to get an API key")
        if not key or not self._token.admits_secret(printable(str(key)).encode()):
            raise RequestError("forbidden", "Invalid API key")

    async def translate(self, request: Request, fields: _Fields) -> Response:
        service = self._service
        asked, limits = _read_asked(AskedTranslation, fields.values), service.limits
        if len(asked.texts) > limits.texts:
            raise invalid(f"request ({len(asked.texts)}) exceeds text limit ({limits.texts})")
        longest = max(map(len, asked.texts), default=0)
        if longest > limits.characters:
            raise invalid(f"request ({longest}) exceeds text limit ({limits.characters})")
        if asked.alternatives >= service.most_beam:
            raise invalid(f"alternatives parameter must be <= {service.most_beam - 1}")
        async with service.in_time(limits.request_seconds):
            return JSONResponse(await self._translated(asked, client_of(request)))

    async def detect(self, request: Request, fields: _Fields) -> Response:  # noqa: ARG002
        texts = _read_asked(AskedText, fields.values).texts
        async with self._service.in_time(self._service.limits.request_seconds):
            detections = await self._likely(" ".join(texts))
        return JSONResponse([_detected(detection) for detection in detections or [_NOTHING]])

    async def translate_file(self, request: Request, fields: _Fields) -> Response:
        service, file = self._service, fields.file
        if file is None:
            raise invalid("missing file parameter")
        if not file.name:
            raise invalid("empty file")
        if len(file.content) > service.limits.file_bytes:
            raise RequestError("too_large", f"the file has more than {service.limits.file_bytes} bytes")
        source, target = self._languages(_read_asked(AskedLanguages, fields.values))
        try:
            require_reader(file.name)
        except UsageError as error:
            raise invalid(f"file format not supported ({error.message})") from None

        async def resolve(beginning: str) -> ModelRoute | None:
            if source != AUTO:
                return self._route(source, target)
            detections = await self._likely(beginning)
            return self._route(detections[0].language if detections else target, target)

        options = Options("" if source == AUTO else source, target)
        async with service.in_time(service.limits.file_seconds):
            try:
                translated = await self.documents.translate(file, options, resolve, client_of(request))
            except DeepwireError as error:
                raise invalid(error.message) from None
        name = self.kept.keep(translated_name(file.name, written_code(translated.target)), translated.content)
        asyncio.get_running_loop().call_later(_KEEP_SECONDS, self.kept.drop)
        answer: dict[str, object] = {"translatedFileUrl": f"{_root(request)}{_DOWNLOADS}/{quote(name)}"}
        if translated.untranslated:
            answer["untranslated"] = list(translated.untranslated)
        return JSONResponse(answer)

    async def download(self, request: Request) -> Response:
        kept = self.kept.find(str(request.path_params["name"]))
        if kept is None:
            raise RequestError("not_found", "there is no such file, or no more")
        name = kept.name.partition(".")[2]
        return FileResponse(kept, media_type="application/octet-stream", filename=name)

    async def health(self, _request: Request) -> Response:
        alive = self._service.batcher.alive
        return JSONResponse({"status": "ok" if alive else "broken"}, 200 if alive else 503)

    def languages(self) -> list[dict[str, object]]:
        """The answer to GET /languages; a language is among its own targets."""
        known = {(source, target) for source, target in self._routes} | {(one, one) for one in self._labels}
        return [
            {
                "code": written_code(label),
                "name": language_name(label),
                "targets": sorted({written_code(to) for to in self._labels if (label, to) in known}),
            }
            for label in self._labels
        ]

    def settings(self) -> dict[str, object]:
        needed = self._token is not None
        first = next(iter(self._routes)).target
        return {
            "charLimit": self._service.limits.characters,
            "frontendTimeout": _FRONTEND_TIMEOUT,
            "apiKeys": needed,
            "keyRequired": needed,
            "suggestions": False,
            "filesTranslation": self._files,
            "supportedFilesFormat": list(ENDINGS) if self._files else [],
            "language": {
                "source": {"code": "auto", "name": "Auto Detect"},
                "target": {"code": written_code(first), "name": language_name(first)},
            },
        }

    def _label(self, code: str) -> str:
        label = self._codes.get(plain_code(code))
        if label is None:
            raise RequestError("invalid", f"{printable(code[:_SHOWN])} is not supported")
        return label

    def _languages(self, asked: AskedLanguages) -> tuple[str, str]:
        """The labels of both languages; `auto` for a source that is to be found out."""
        source = AUTO if asked.source.lower() == AUTO else self._label(asked.source)
        return source, self._label(asked.target)

    async def _likely(self, text: str) -> list[Detection]:
        return await self._service.run_in_worker(partial(likely_languages, text, self._labels))

    def _route(self, source: str, target: str) -> ModelRoute | None:
        """How to translate; None from a language into itself."""
        if source == target:
            return None
        route = self._routes.get(Direction(source, target))
        if route is None:
            to, from_ = (f"{language_name(one)} ({written_code(one)})" for one in (target, source))
            raise RequestError("invalid", f"{to} is not available as a target language from {from_}")
        return route

    async def _translated(self, asked: AskedTranslation, client: Client) -> dict[str, object]:
        """The answer to a request that is within the limits."""
        service, kind = self._service, html_text if asked.format == "html" else plain_text
        from_, target = self._languages(asked)
        documents = await service.run_in_worker(lambda: [kind(text) for text in asked.texts])
        detected: list[Detection] | None = None
        sources = [from_] * len(asked.texts)
        if from_ == AUTO:
            likely = [await self._likely(beginning(each)) for each in documents]  # others come in between
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
            plan = await service.run_in_worker(partial(service.plan, units, route, target, starts))
            translations = await translate_plan(service, plan, route, n_best, client)
            for rank in range(n_best):
                written = partial(_written, part, plan, translations, rank)
                for place, text in zip(places, await service.run_in_worker(written), strict=True):
                    candidates[rank][place] = text
            untranslated += plan.untranslated
        return _answer(asked, candidates, detected, untranslated)


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


def _root(request: Request) -> str:
    """The address of the server as the client knows it, which a proxy tells."""
    forwarded = request.headers.get("x-forwarded-proto", "").strip().lower()
    scheme = forwarded if forwarded in ("http", "https") else "http"
    prefix = request.headers.get("x-forwarded-prefix", "").strip().strip("/")
    return f"{scheme}://{request.url.netloc}{f'/{prefix}' if prefix else ''}"


_SPECIAL = re.compile(r"[\s/\\:*?\"'<>|%;&#]")
_LONGEST = 50  # characters, of four bytes at most: a name on disk has 255


class KeptFiles:
    """Translated documents in a folder of their own, which goes with the server; the oldest make room."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="deepwire-")

    def keep(self, name: str, content: bytes) -> str:
        """Keep a document; returns what it can be fetched by, which nobody guesses."""
        printable = "".join(sign if sign.isprintable() else "_" for sign in name[-_LONGEST:])
        key = f"{secrets.token_hex(16)}.{_SPECIAL.sub('_', printable).lstrip('.')}"
        Path(self._folder.name, key).write_bytes(content)
        self._until[key] = time.monotonic() + _KEEP_SECONDS
        self.drop()
        return key

    def find(self, key: str) -> Path | None:
        """The document of a key; None where there is none, or no more."""
        self.drop()
        return Path(self._folder.name, key) if key in self._until else None

    def drop(self) -> None:
        """Remove those whose time is over, and the oldest where they are too many."""
        for key, until in list(self._until.items()):
            if until <= time.monotonic() or len(self._until) > _MOST_KEPT:
                Path(self._folder.name, key).unlink(missing_ok=True)
                del self._until[key]

    def close(self) -> None:
        """Remove all of them."""
        self._until.clear()
        self._folder.cleanup()
