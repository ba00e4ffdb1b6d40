"""What there is under which address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from deepwire.errors import DeepwireError
from deepwire.serve.connections import client_of
from deepwire.serve.disconnection import DisconnectedError, wait_for_disconnect
from deepwire.serve.document_translation import DocumentRoute, DocumentTranslator, Upload
from deepwire.serve.documents.document import Options
from deepwire.serve.documents.registry import ENDINGS
from deepwire.serve.prometheus_metrics import CONTENT_TYPE
from deepwire.serve.queue import TextFailedError
from deepwire.serve.request import (
    AUTO,
    Limits,
    RequestError,
    place_of,
    printable,
    read_request_body,
    read_texts,
)
from deepwire.serve.service import Service, target_of

_UNTRANSLATED = "Deepwire-Untranslated"
_WARNING = "Deepwire-Warning"
"""Header of a document's translation: beginnings of what stays as it is, with commas between them."""
_MOST_TOLD = 10  # of them, each of 40 characters: proxies refuse long headers


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str


_PAGE_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("page", "server", "translation", "documents")
    },
}


def _read_page() -> Mapping[str, PageFile]:
    """The files by their addresses; what is not among them cannot be asked for."""
    folder = files("deepwire.serve") / "page"
    return {path: PageFile((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGE_FILES.items()}


PAGE = _read_page()
OPEN = frozenset({*PAGE, "/healthz", "/readyz"})
"""What can be had without a token: it says nothing of the model."""
WATCHED = frozenset({"/healthz", "/readyz", "/metrics"})
"""What is answered to the end, also while the server stops."""
OWN_PATHS = frozenset({"/languages", "/translate", "/detect", "/translate_file"})
"""deepwire's own interface, which may be under a folder."""
PATHS = frozenset({*OPEN, *WATCHED, *OWN_PATHS})
ErrorAnswer = Callable[["RequestError", str, str], Response]
"""The answer to a request that is refused, with its path and its id."""

_CORS_SECONDS = 1_728_000  # twenty days
_FILE_KEYS = ("name", "source", "target")
_SHOWN = 40
_CLIENT_GONE = 499  # no standard status: nobody reads it but the metrics
Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger("deepwire.serve")


def error_response(error: RequestError, path: str, request_id: str) -> Response:  # noqa: ARG001 - for others
    """The answer to a refused request."""
    return JSONResponse(error.record(request_id), error.status, error.headers)


class Site(NamedTuple):
    """The addresses of a server, and who may ask for which.

    Attributes:
        app: Answers.
        open: Paths that need no token, besides those that begin with one of `open_folders`.
        paths: Paths that the metrics tell apart; others are made up by clients, and there is no end to them.
        open_folders: Beginnings of paths.
        refuse: The answer to a request that is not even looked at.
        origins: Whose pages may use it; `*` = all. Their browsers ask first, without a token.
        close: Removes what it keeps on disk.
    """

    app: ASGIApp
    open: frozenset[str] = OPEN
    paths: frozenset[str] = PATHS
    open_folders: tuple[str, ...] = ()
    refuse: ErrorAnswer = error_response
    origins: Sequence[str] = ()
    close: Callable[[], object] = lambda: None

    def for_pages_of(self, origins: Sequence[str]) -> Site:
        """The same for pages of other servers, such as `https://example.org`; `*` = of all."""
        app = CORSMiddleware(
            self.app,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Content-Type"),
            expose_headers=("Authorization", _UNTRANSLATED, _WARNING),
            max_age=_CORS_SECONDS,
        )
        return self._replace(app=app, origins=origins)

    def is_open(self, path: str) -> bool:
        """Whether a path can be had without a token."""
        return path in self.open or path.startswith(self.open_folders)


def own_site(service: Service, *, files: bool = True) -> Site:
    """The addresses of deepwire's own interface; with `files` documents are translated."""
    documents = DocumentTranslator(service) if files else None
    return Site(application([*own_routes(service, documents), *page_routes()], error_response))


def own_routes(service: Service, documents: DocumentTranslator | None, folder: str = "") -> list[Route]:
    """The interface of deepwire: `/translate`, `/languages` and so on under a folder."""
    file = (
        []
        if documents is None
        else [Route(f"{folder}/translate_file", _translate_file(service, documents), methods=["POST"])]
    )
    return [
        *file,
        Route(f"{folder}/translate", _translate(service), methods=["POST"]),
        Route(f"{folder}/detect", _detect(service), methods=["POST"]),
        Route(f"{folder}/languages", _languages(service, files=documents is not None), methods=["GET"]),
        Route("/healthz", _healthz(service), methods=["GET"]),
        Route("/readyz", _readyz(service), methods=["GET"]),
        Route("/metrics", _metrics(service), methods=["GET"]),
    ]


def page_routes(folder: str = "") -> list[Route]:
    """The page, which finds the interface of deepwire under a folder."""
    routes = []
    for path, file in PAGE.items():
        content = file.content
        if folder and path == "/":
            content = content.replace(b"<html ", f'<html data-api="{folder.strip("/")}/" '.encode(), 1)
        routes.append(Route(path, _file(file._replace(content=content)), methods=["GET"]))
    return routes


def application(routes: Sequence[Route], answer: ErrorAnswer) -> Starlette:
    """An application: addresses, and errors as JSON."""

    async def request_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestError)
        return answer(error, request.url.path, request.state.id)

    async def http_error(request: Request, error: Exception) -> Response:
        """What the router says: there is no such address, or it wants another method."""
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "")
            refused = RequestError("method_not_allowed", f"use {allowed}", headers=error.headers)
        else:
            refused = RequestError("not_found", "there is nothing at this address")
        return answer(refused, request.url.path, request.state.id)

    async def fault(request: Request, _error: Exception) -> Response:
        """A fault of ours, which is logged elsewhere."""
        refused = RequestError("internal", "the server failed on this request")
        return answer(refused, request.url.path, request.state.id)

    handlers = {RequestError: request_error, HTTPException: http_error, Exception: fault}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


def _translate(service: Service) -> Endpoint:
    @translating
    async def translate(request: Request) -> Response:
        body = read_request_body(await _read(request, service.limits), service.limits)
        return JSONResponse(
            await service.translate(body, sender(request), lambda: wait_for_disconnect(request))
        )

    return translate


def _detect(service: Service) -> Endpoint:
    @translating
    async def detect(request: Request) -> Response:
        body = read_texts(await _read(request, service.limits), service.limits)
        return JSONResponse(await service.detect(body))

    return detect


def _translate_file(service: Service, documents: DocumentTranslator) -> Endpoint:
    @translating
    async def translate_file(request: Request) -> Response:
        asked, limits = request.query_params, service.limits
        for name in asked:
            if name not in _FILE_KEYS:
                known = ", ".join(_FILE_KEYS)
                raise RequestError("invalid", f"{printable(name)[:_SHOWN]}: unknown; known are {known}")
        name, warnings = asked.get("name", ""), list[str]()
        source, target = (service.models.label(asked.get(key)) for key in ("source", "target"))
        if not name:
            raise RequestError("invalid", "name: is needed, for the ending of it: ?name=report.docx")
        file = Upload(name, await read_body(request, limits.file_bytes, limits.body_seconds))

        async def resolve(beginning: str) -> DocumentRoute:
            _, route = await service.resolve_route(beginning, source, target)
            into = target or ("" if route is None else target_of(route))
            return DocumentRoute(route, into, into or "translated")

        async with service.in_time(limits.file_seconds):
            directions = service.models.routes
            targets = {direction.target for direction in directions}
            sources = {direction.source for direction in directions if target in (None, direction.target)}
            options = Options(
                "" if source == AUTO else source or (sources.pop() if len(sources) == 1 else ""),
                target or (targets.pop() if len(targets) == 1 else ""),
                warn=warnings.append,
            )
            try:
                translated = await documents.translate(
                    file, options, resolve, sender(request), lambda: wait_for_disconnect(request)
                )
            except DeepwireError as error:
                raise RequestError("invalid", error.message) from None
        attachment = f"attachment; filename*=utf-8''{quote(printable(translated.name))}"
        headers = {"Content-Disposition": attachment}
        if warnings:
            headers[_WARNING] = quote(printable("; ".join(warnings)))
        if translated.untranslated:
            told = translated.untranslated[:_MOST_TOLD]
            headers[_UNTRANSLATED] = ", ".join(quote(printable(beginning)) for beginning in told)
        return Response(translated.content, media_type="application/octet-stream", headers=headers)

    return translate_file


def translating(endpoint: Endpoint) -> Endpoint:
    """An endpoint whose client may go away, and on whose texts the model may fail."""

    @wraps(endpoint)
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (DisconnectedError, ClientDisconnect):
            return Response(status_code=_CLIENT_GONE)
        except TextFailedError as error:
            log_failure(request.state.id, error.__cause__ or error)
            raise RequestError("internal", "the model failed on this text", index=error.index) from None

    return answer


def sender(request: Request) -> str:
    """Who asks: clients take turns."""
    return client_of(request.client.host if request.client else "")


def log_failure(request_id: str, error: BaseException) -> None:
    """Log what went wrong and where."""
    log.error("request %s failed: %s at %s", request_id, *place_of(error))


async def _read(request: Request, limits: Limits) -> bytes:
    """The body of a request, which must be JSON.

    Raises:
        RequestError, ClientDisconnect: As `read_body`; or it is not JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError("unsupported_media_type", "send Content-Type: application/json")
    return await read_body(request, limits.body_bytes, limits.body_seconds)


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """The body of a request, of so many bytes at most, which must come within so many seconds.

    Raises:
        RequestError: It is compressed, too large, or comes too slowly.
        ClientDisconnect: The client has gone away.
    """
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RequestError("unsupported_media_type", "send the body as it is, without Content-Encoding")
    too_large = RequestError("too_large", f"the body has more than {most} bytes")
    # h11 has seen to it that the length is a number, and that nothing is sent beyond it.
    if int(request.headers.get("content-length", "0")) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        raise RequestError("body_too_slow", f"no whole body within {seconds:g} s") from None
    return bytes(body)


def _languages(service: Service, *, files: bool) -> Endpoint:
    endings = list(ENDINGS) if files else []

    async def languages(_request: Request) -> Response:
        return JSONResponse({**service.facts(), "files": endings})

    return languages


def _healthz(service: Service) -> Endpoint:
    async def healthz(_request: Request) -> Response:
        alive = service.batcher.alive
        return JSONResponse({"status": "alive" if alive else "broken"}, 200 if alive else 503)

    return healthz


def _readyz(service: Service) -> Endpoint:
    async def readyz(_request: Request) -> Response:
        if not service.batcher.alive:
            return JSONResponse({"status": "broken"}, 503)
        stopping = service.work.stopping
        return JSONResponse({"status": "stopping" if stopping else "ready"}, 503 if stopping else 200)

    return readyz


def _metrics(service: Service) -> Endpoint:
    async def metrics(_request: Request) -> Response:
        return Response(service.metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    return metrics


def _file(file: PageFile) -> Endpoint:
    async def page(_request: Request) -> Response:
        headers = {"Content-Type": file.media_type, "Cache-Control": "no-cache"}
        return Response(file.content, headers=headers)

    return page
