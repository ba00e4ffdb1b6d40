"""The addresses of LibreTranslate's interface."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import deepwire
from deepwire.serve.document_translation import DocumentTranslator
from deepwire.serve.documents.registry import ENDINGS
from deepwire.serve.libretranslate.fields import (
    ApiKeys,
    Fields,
    invalid,
    read_fields,
    read_translation,
)
from deepwire.serve.libretranslate.language_codes import language_name, written_code
from deepwire.serve.libretranslate.translating import LibreTranslator
from deepwire.serve.request import RequestError
from deepwire.serve.routes import (
    OPEN,
    OWN_PATHS,
    PATHS,
    WATCHED,
    Endpoint,
    Site,
    application,
    client_of,
    error_response,
    own_routes,
    page_routes,
    translating,
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


class Choices(NamedTuple):
    """Choices of the operator.

    Attributes:
        keys: Who may translate.
        cosmetics: Whether translations are corrected as LibreTranslate does.
        files: Whether documents are translated.
        prefix: A beginning of all paths.
    """

    keys: ApiKeys = ApiKeys()
    cosmetics: bool = True
    files: bool = True
    prefix: str = ""


def libretranslate_site(service: Service, choices: Choices) -> Site:
    """The interface of LibreTranslate; that of deepwire is under `/deepwire`, and the page at `/`."""
    documents = DocumentTranslator(service)
    interface = _Interface(service, documents, choices)
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
        *own_routes(service, documents if choices.files else None, OWN_FOLDER),
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
    """The endpoints.

    Args:
        service: Translates texts.
        documents: Translates documents.
        choices: Of the operator.
    """

    def __init__(self, service: Service, documents: DocumentTranslator, choices: Choices) -> None:
        self._service, self._choices = service, choices
        self._translator = LibreTranslator(service, documents, cosmetics=choices.cosmetics)
        limits = service.limits
        self._kept = KeptFiles(limits.file_keep_seconds, limits.files)

    def close(self) -> None:
        """Remove what is kept."""
        self._kept.close()

    def asked(self, answer: Answer, *, files: bool = False) -> Endpoint:
        """An endpoint that reads fields and needs a key."""

        @wraps(answer)
        async def endpoint(request: Request) -> Response:
            limits = self._service.limits
            if files and not self._choices.files:
                raise RequestError("forbidden", "Files translation are disabled on this server.")
            most = limits.file_bytes + limits.body_bytes if files else limits.body_bytes
            fields = await read_fields(request, limits, most)
            self._choices.keys.check(fields, request.headers.get("authorization"))
            return await answer(request, fields)

        return translating(endpoint)

    async def translate(self, request: Request, fields: Fields) -> Response:
        """POST /translate."""
        service = self._service
        asked = read_translation(fields, service.limits, service.most_beam - 1, self._translator.codes)
        async with service.in_time(service.limits.request_seconds):
            return JSONResponse(await self._translator.translate(asked, client_of(request)))

    async def detect(self, request: Request, fields: Fields) -> Response:  # noqa: ARG002
        """POST /detect."""
        text = fields.values.get("q")
        if text is None:
            raise invalid("missing q parameter")
        texts = text if isinstance(text, list) else [text]
        if not all(isinstance(value, str) for value in texts):
            raise invalid("q parameter is not a string")
        async with self._service.in_time(self._service.limits.request_seconds):
            return JSONResponse(await self._translator.detect(" ".join(map(str, texts))))

    async def translate_file(self, request: Request, fields: Fields) -> Response:
        """POST /translate_file."""
        service = self._service
        if fields.file is None:
            raise invalid("missing file parameter")
        if not fields.file.name:
            raise invalid("empty file")
        if len(fields.file.content) > service.limits.file_bytes:
            raise RequestError("too_large", f"the file has more than {service.limits.file_bytes} bytes")
        source, target = fields.text("source"), fields.text("target")
        async with service.in_time(service.limits.file_seconds):
            translated = await self._translator.translate_file(
                fields.file, source, target, client_of(request)
            )
        name = self._kept.keep(translated.name, translated.content)
        asyncio.get_running_loop().call_later(service.limits.file_keep_seconds, self._kept.drop)
        answer: dict[str, object] = {"translatedFileUrl": f"{self._root(request)}{_DOWNLOADS}/{quote(name)}"}
        if translated.untranslated:
            answer["untranslated"] = list(translated.untranslated)
        return JSONResponse(answer)

    async def download(self, request: Request) -> Response:
        """GET /download_file/NAME."""
        kept = self._kept.find(str(request.path_params["name"]))
        if kept is None:
            raise RequestError("not_found", "there is no such file, or no more")
        return FileResponse(kept.path, media_type="application/octet-stream", filename=kept.name)

    async def suggest(self, request: Request) -> Response:  # noqa: ARG002
        """POST /suggest."""
        raise RequestError("forbidden", "Suggestions are disabled on this server.")

    async def languages(self, request: Request) -> Response:  # noqa: ARG002
        """GET /languages."""
        return JSONResponse(self._translator.languages())

    async def settings(self, request: Request) -> Response:  # noqa: ARG002
        """GET /frontend/settings."""
        needed = self._choices.keys.required
        first = self._translator.first_target
        return JSONResponse(
            {
                "charLimit": self._service.limits.characters,
                "frontendTimeout": _FRONTEND_TIMEOUT,
                "apiKeys": needed,
                "keyRequired": needed,
                "suggestions": False,
                "filesTranslation": self._choices.files,
                "supportedFilesFormat": list(ENDINGS) if self._choices.files else [],
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
        return JSONResponse(_specification() | {"basePath": self._choices.prefix or "/"})

    async def docs(self, request: Request) -> Response:  # noqa: ARG002
        """GET /docs."""
        from jinja2 import Environment, PackageLoader

        templates = Environment(loader=PackageLoader("deepwire.serve", "page"), autoescape=True)
        page = templates.get_template("interface.html")
        return HTMLResponse(page.render(paths=_specification()["paths"]))

    def _root(self, request: Request) -> str:
        """The address of the server as the client knows it."""
        forwarded = request.headers.get("x-forwarded-proto", "").strip().lower()
        scheme = forwarded if forwarded in ("http", "https") else "http"
        return f"{scheme}://{request.url.netloc}{self._choices.prefix}"


_SPECIAL = re.compile(r"[\s/\\:*?\"'<>|%;&#]")
_LONGEST = 50  # characters, of four bytes at most: a name on disk has 255


class KeptFile(NamedTuple):
    """A document on disk, what it is called when it is fetched, and until when of the clock it is kept."""

    path: Path
    name: str
    until: float


class KeptFiles:
    """Documents in a folder of their own, which goes with the server.

    Args:
        seconds: How long each is kept.
        most: How many at a time; the oldest makes room.
        now: The clock.
    """

    def __init__(self, seconds: float, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._most, self._now = seconds, most, now
        self._files: dict[str, KeptFile] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def keep(self, name: str, content: bytes) -> str:
        """Keep a document; returns what it can be fetched by, which nobody guesses."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="deepwire-")
        self.drop(room=1)
        printable = "".join(sign if sign.isprintable() else "_" for sign in name[-_LONGEST:])
        plain = _SPECIAL.sub("_", printable).lstrip(".")
        key = f"{secrets.token_hex(16)}.{plain}"
        path = Path(self._folder.name) / key
        path.write_bytes(content)
        self._files[key] = KeptFile(path, plain, self._now() + self._seconds)
        return key

    def find(self, key: str) -> KeptFile | None:
        """The document of a key; None where there is none, or no more."""
        self.drop()
        return self._files.get(key)

    def drop(self, room: int = 0) -> None:
        """Remove those whose time is over, and the oldest where there is no room for so many more."""
        now = self._now()
        for number, (key, kept) in enumerate(list(self._files.items())):
            if kept.until <= now or (len(self._files) + room > self._most and number == 0):
                kept.path.unlink(missing_ok=True)
                del self._files[key]

    def close(self) -> None:
        """Remove all of them."""
        self._files.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
