"""The interface of LibreTranslate: its addresses, and the fields of a request, JSON or a form."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import deepwire
from deepwire.serve.access import Token
from deepwire.serve.document_translation import DocumentTranslator, Upload, translated_name
from deepwire.serve.documents.registry import ENDINGS
from deepwire.serve.libretranslate_translator import (
    AskedLanguages,
    AskedText,
    AskedTranslation,
    LibreTranslator,
    invalid,
    language_name,
    read_asked,
    written_code,
)
from deepwire.serve.request import Limits, RequestError, printable
from deepwire.serve.routes import (
    OPEN,
    OWN_PATHS,
    PATHS,
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
from deepwire.serve.service import Service

OWN_FOLDER = "/deepwire"
"""Where deepwire's own interface is beside this one."""
_DOWNLOADS = "/download_file"
_PATHS = frozenset(
    {"/translate", "/detect", "/languages", "/translate_file", "/frontend/settings", "/suggest"}
    | {"/health", "/spec", "/docs"}
)
_FRONTEND_TIMEOUT = 500  # what clients expect
_MAX_FIELDS = 100
_MOST_KEPT, _KEEP_SECONDS = 100, 1800.0
"""How many translated documents are kept, and for how long."""


@dataclass
class Fields:
    """The fields of a request.

    Attributes:
        values: By name; those of the address count too, if the body does not have them.
        file: The field `file`, if it is one.
    """

    values: dict[str, object] = field(default_factory=dict)
    file: Upload | None = None


async def read_fields(request: Request, limits: Limits, most_bytes: int) -> Fields:
    """The fields of a request.

    Raises:
        RequestError: It is neither JSON nor a form, too large, or comes too slowly.
    """
    kind = content_type(request)
    body = await read_body(request, most_bytes, limits.body_seconds)
    fields = Fields(dict(request.query_params))
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


async def _read_multipart(request: Request, body: bytes, fields: Fields) -> None:
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
    """
    documents = DocumentTranslator(service)
    interface = _Interface(service, documents, token, files=files)
    routes = [
        Route("/translate", interface.asked(interface.translate), methods=["POST"]),
        Route("/detect", interface.asked(interface.detect), methods=["POST"]),
        Route("/translate_file", interface.asked(interface.translate_file, files=True), methods=["POST"]),
        Route("/suggest", interface.suggest, methods=["POST"]),
        Route("/languages", interface.languages, methods=["GET"]),
        Route("/frontend/settings", interface.settings, methods=["GET"]),
        Route("/health", interface.health, methods=["GET"]),
        Route("/spec", interface.spec, methods=["GET"]),
        Route("/docs", interface.docs, methods=["GET"]),
        Route(_DOWNLOADS + "/{name}", interface.download, methods=["GET"]),
        *own_routes(service, documents if files else None, OWN_FOLDER),
        *page_routes(OWN_FOLDER),
    ]
    deepwire_paths = {f"{OWN_FOLDER}{path}" for path in OWN_PATHS}
    return Site(
        application(routes, _refuse),
        OPEN | _PATHS,
        PATHS | _PATHS | deepwire_paths,
        (f"{_DOWNLOADS}/",),
        _refuse,
        close=interface.close,
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


Answer = Callable[[Request, Fields], Awaitable[Response]]


class _Interface:
    """The endpoints; the arguments are those of `libretranslate_site`."""

    def __init__(
        self, service: Service, documents: DocumentTranslator, token: Token | None, *, files: bool
    ) -> None:
        self._service, self._token, self._files = service, token, files
        self._translator = LibreTranslator(service, documents)
        self._kept = KeptFiles()

    def close(self) -> None:
        """Remove what is kept."""
        self._kept.close()

    def asked(self, answer: Answer, *, files: bool = False) -> Endpoint:
        """An endpoint that reads fields and needs a key."""

        @wraps(answer)
        async def endpoint(request: Request) -> Response:
            limits = self._service.limits
            if files and not self._files:
                raise RequestError("forbidden", "Files translation are disabled on this server.")
            most = limits.file_bytes + limits.body_bytes if files else limits.body_bytes
            fields = await read_fields(request, limits, most)
            self._require_key(fields, request.headers.get("authorization", ""))
            return await answer(request, fields)

        return endpoint

    def _require_key(self, fields: Fields, header: str) -> None:
        """Checks that a request has a key, in a field or in its `Authorization` header, if one is needed."""
        key = fields.values.get("api_key")
        if self._token is None or self._token.admits(header.encode("latin-1")):
            return
        if not key and not header:
            raise RequestError("invalid", "Please contact the server operator to get an API key")
        if not key or not self._token.admits_secret(printable(str(key)).encode()):
            raise RequestError("forbidden", "Invalid API key")

    async def translate(self, request: Request, fields: Fields) -> Response:
        """POST /translate."""
        service = self._service
        asked, limits = read_asked(AskedTranslation, fields.values), service.limits
        if len(asked.texts) > limits.texts:
            raise invalid(f"request ({len(asked.texts)}) exceeds text limit ({limits.texts})")
        longest = max(map(len, asked.texts), default=0)
        if longest > limits.characters:
            raise invalid(f"request ({longest}) exceeds text limit ({limits.characters})")
        if asked.alternatives >= service.most_beam:
            raise invalid(f"alternatives parameter must be <= {service.most_beam - 1}")
        async with service.in_time(limits.request_seconds):
            return JSONResponse(await self._translator.translate(asked, client_of(request)))

    async def detect(self, request: Request, fields: Fields) -> Response:  # noqa: ARG002
        """POST /detect."""
        texts = read_asked(AskedText, fields.values).texts
        async with self._service.in_time(self._service.limits.request_seconds):
            return JSONResponse(await self._translator.detect(" ".join(texts)))

    async def translate_file(self, request: Request, fields: Fields) -> Response:
        """POST /translate_file."""
        service = self._service
        if fields.file is None:
            raise invalid("missing file parameter")
        if not fields.file.name:
            raise invalid("empty file")
        if len(fields.file.content) > service.limits.file_bytes:
            raise RequestError("too_large", f"the file has more than {service.limits.file_bytes} bytes")
        asked = read_asked(AskedLanguages, fields.values)
        async with service.in_time(service.limits.file_seconds):
            translated = await self._translator.translate_file(fields.file, asked, client_of(request))
        called = translated_name(fields.file.name, written_code(translated.target))
        name = self._kept.keep(called, translated.content)
        asyncio.get_running_loop().call_later(_KEEP_SECONDS, self._kept.drop)
        answer: dict[str, object] = {"translatedFileUrl": f"{_root(request)}{_DOWNLOADS}/{quote(name)}"}
        if translated.untranslated:
            answer["untranslated"] = list(translated.untranslated)
        return JSONResponse(answer)

    async def download(self, request: Request) -> Response:
        """GET /download_file/NAME."""
        kept = self._kept.find(str(request.path_params["name"]))
        if kept is None:
            raise RequestError("not_found", "there is no such file, or no more")
        name = kept.name.partition(".")[2]
        return FileResponse(kept, media_type="application/octet-stream", filename=name)

    async def suggest(self, request: Request) -> Response:  # noqa: ARG002
        """POST /suggest."""
        raise RequestError("forbidden", "Suggestions are disabled on this server.")

    async def languages(self, request: Request) -> Response:  # noqa: ARG002
        """GET /languages."""
        return JSONResponse(self._translator.languages())

    async def settings(self, request: Request) -> Response:  # noqa: ARG002
        """GET /frontend/settings."""
        needed = self._token is not None
        first = self._translator.first_target
        return JSONResponse(
            {
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
        )

    async def health(self, request: Request) -> Response:  # noqa: ARG002
        """GET /health."""
        alive = self._service.batcher.alive
        return JSONResponse({"status": "ok" if alive else "broken"}, 200 if alive else 503)

    async def spec(self, request: Request) -> Response:  # noqa: ARG002
        """GET /spec."""
        return JSONResponse(_specification())

    async def docs(self, request: Request) -> Response:  # noqa: ARG002
        """GET /docs."""
        from jinja2 import Environment, PackageLoader

        templates = Environment(loader=PackageLoader("deepwire.serve", "page"), autoescape=True)
        page = templates.get_template("interface.html")
        return HTMLResponse(page.render(paths=_specification()["paths"]))


def _root(request: Request) -> str:
    """The address of the server as the client knows it, which a proxy tells."""
    forwarded = request.headers.get("x-forwarded-proto", "").strip().lower()
    scheme = forwarded if forwarded in ("http", "https") else "http"
    prefix = request.headers.get("x-forwarded-prefix", "").strip().strip("/")
    return f"{scheme}://{request.url.netloc}{f'/{prefix}' if prefix else ''}"


_SPECIAL = re.compile(r"[\s/\\:*?\"'<>|%;&#]")
_LONGEST = 50  # characters, of four bytes at most: a name on disk has 255


class KeptFiles:
    """Translated documents in a folder of their own, which goes with the server; the oldest make room.

    Args:
        now: The clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until: dict[str, float] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="deepwire-")

    def keep(self, name: str, content: bytes) -> str:
        """Keep a document; returns what it can be fetched by, which nobody guesses."""
        printable = "".join(sign if sign.isprintable() else "_" for sign in name[-_LONGEST:])
        key = f"{secrets.token_hex(16)}.{_SPECIAL.sub('_', printable).lstrip('.')}"
        Path(self._folder.name, key).write_bytes(content)
        self._until[key] = self._now() + _KEEP_SECONDS
        self.drop()
        return key

    def find(self, key: str) -> Path | None:
        """The document of a key; None where there is none, or no more."""
        self.drop()
        return Path(self._folder.name, key) if key in self._until else None

    def drop(self) -> None:
        """Remove those whose time is over, and the oldest where they are too many."""
        for key, until in list(self._until.items()):
            if until <= self._now() or len(self._until) > _MOST_KEPT:
                Path(self._folder.name, key).unlink(missing_ok=True)
                del self._until[key]

    def close(self) -> None:
        """Remove all of them."""
        self._until.clear()
        self._folder.cleanup()
