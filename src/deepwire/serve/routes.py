"""The addresses of deepwire's own interface and of the page."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
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
from deepwire.serve.batcher import TextFailedError
from deepwire.serve.document_translation import DocumentTranslator, Upload, translated_name
from deepwire.serve.documents.document import Options
from deepwire.serve.documents.registry import ENDINGS
from deepwire.serve.model_pool import Route as ModelRoute
from deepwire.serve.request import AUTO, Body, RequestBody, RequestError, TextBody, printable, read_body_of
from deepwire.serve.service import Client, DisconnectedError, Service

_UNTRANSLATED = "Deepwire-Untranslated"
"""Header of a document's translation: beginnings of what stays as it is, with commas between them."""
_WARNING = "Deepwire-Warning"
_MAX_TOLD = 10  # of them, each of 40 characters: proxies refuse long headers


_SCRIPTS = ("page.js", "server.js", "translation.js", "documents.js")
_PAGE_FILES = {"/": "page.html"} | {f"/{name}": name for name in ("page.css", *_SCRIPTS)}
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


OPEN = frozenset({*_PAGE_FILES, "/healthz", "/readyz"})
"""Paths that need no token: they say nothing of the model."""
WATCHED = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are answered to the end, also while the server stops."""
ErrorAnswer = Callable[["RequestError", str, str], Response]
"""The answer to a request that is refused, with its path and its id."""

_POST = ("POST",)
_CORS_SECONDS = 1_728_000  # twenty days
_CLIENT_GONE = 499  # no standard status: nobody reads it but the metrics
Endpoint = Callable[[Request], Awaitable[Response]]
_METRICS_KIND = "text/plain; version=0.0.4; charset=utf-8"
_NETWORK = 64  # bits of an IPv6 address that name a customer; the rest is free to choose

log = logging.getLogger("deepwire.serve")


def error_response(error: RequestError, path: str, request_id: str) -> Response:  # noqa: ARG001 - for others
    """The answer to a refused request, with the id under which the server's log knows it."""
    index = {} if error.index is None else {"index": error.index}
    record = {"code": error.code, "message": error.message, **index, "request": request_id}
    return JSONResponse({"error": record}, error.status, error.headers)


class Site(NamedTuple):
    """The addresses of a server, and who may ask for which.

    Attributes:
        app: Answers.
        paths: Paths that the metrics tell apart; others are made up by clients, and there is no end to them.
        open: Paths that need no token, besides those that begin with one of `open_folders`.
        open_folders: Beginnings of paths.
        refuse: The answer to a request that is not even looked at.
        origins: Whose pages may use it; `*` = all. Their browsers ask first, without a token.
        close: Removes what it keeps on disk.
    """

    app: ASGIApp
    paths: frozenset[str]
    open: frozenset[str] = OPEN
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
    routes = [*own_routes(service, documents), *page_routes()]
    return Site(application(routes, error_response), frozenset(route.path for route in routes))


def own_routes(service: Service, documents: DocumentTranslator | None, folder: str = "") -> list[Route]:
    """The interface of deepwire: `/translate`, `/languages` and so on under a folder."""
    own = _Interface(service, documents)
    files = (
        [] if documents is None else [Route(f"{folder}/translate_file", own.translate_file, methods=_POST)]
    )
    return [
        *files,
        Route(f"{folder}/translate", own.translate, methods=_POST),
        Route(f"{folder}/detect", own.detect, methods=_POST),
        Route(f"{folder}/languages", own.languages),
        Route("/healthz", own.healthz),
        Route("/readyz", own.readyz),
        Route("/metrics", own.metrics),
    ]


def page_routes(folder: str = "") -> list[Route]:
    """The page, which finds the interface of deepwire under a folder."""
    return [Route(path, partial(_page_file, path, folder)) for path in _PAGE_FILES]


async def _page_file(path: str, folder: str, _request: Request) -> Response:
    name = _PAGE_FILES[path]
    kind = f"{_KINDS[name.partition('.')[2]]}; charset=utf-8"
    content = (files("deepwire.serve") / "page" / name).read_bytes()
    if folder and path == "/":
        content = content.replace(b"<html ", f'<html data-api="{folder.strip("/")}/" '.encode(), 1)
    return Response(content, headers={"Content-Type": kind, "Cache-Control": "no-cache"})


def application(routes: Sequence[Route], answer: ErrorAnswer) -> Starlette:
    """An application: addresses, and errors as JSON."""

    async def refused(request: Request, error: Exception) -> Response:
        return answer(_refusal(error, request.state.id), request.url.path, request.state.id)

    async def gone(_request: Request, _error: Exception) -> Response:
        return Response(status_code=_CLIENT_GONE)

    handlers = {
        RequestError: refused,
        HTTPException: refused,
        Exception: refused,
        DisconnectedError: gone,
        ClientDisconnect: gone,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


def _refusal(error: Exception, request_id: str) -> RequestError:
    if isinstance(error, TextFailedError):
        log_failure(request_id, error.__cause__ or error)
    if isinstance(error, RequestError):
        return error
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return RequestError("method_not_allowed", f"use {allowed}", headers=error.headers)
    if isinstance(error, HTTPException):
        return RequestError("not_found", "there is nothing at this address")
    return RequestError("internal", "the server failed on this request")  # which logs it


class _Interface:
    """The endpoints of deepwire's own interface; without `documents` none are translated."""

    def __init__(self, service: Service, documents: DocumentTranslator | None) -> None:
        self._service, self._documents = service, documents

    async def translate(self, request: Request) -> Response:
        body = await self._read(RequestBody, request)
        return JSONResponse(await self._service.translate(body, client_of(request)))

    async def detect(self, request: Request) -> Response:
        return JSONResponse(await self._service.detect(await self._read(TextBody, request)))

    async def translate_file(self, request: Request) -> Response:
        service, documents = self._service, self._documents
        assert documents is not None
        asked, limits = request.query_params, service.limits
        if not asked.get("name"):
            raise RequestError("invalid", "name: is needed, for the ending of it: ?name=report.docx")
        source, target = (service.models.label(asked.get(key)) for key in ("source", "target"))
        file = Upload(asked["name"], await read_body(request, limits.file_bytes, limits.body_seconds))
        warnings: list[str] = []

        options = self._options(source, target)._replace(warn=warnings.append)

        async def resolve(beginning: str) -> ModelRoute | None:
            return (await service.resolve_route(beginning, source, target))[1]

        async with service.in_time(limits.file_seconds):
            try:
                translated = await documents.translate(file, options, resolve, client_of(request))
            except DeepwireError as error:
                raise RequestError("invalid", error.message) from None
        name = translated_name(file.name, translated.target or "translated")
        attachment = f"attachment; filename*=utf-8''{quote(printable(name))}"
        headers = {"Content-Disposition": attachment}
        if warnings:
            headers[_WARNING] = quote(printable("; ".join(warnings)))
        if translated.untranslated:
            told = translated.untranslated[:_MAX_TOLD]
            headers[_UNTRANSLATED] = ", ".join(quote(printable(beginning)) for beginning in told)
        return Response(translated.content, media_type="application/octet-stream", headers=headers)

    def _options(self, source: str | None, target: str | None) -> Options:
        """The languages of a document, as far as they are known: where there is only one, it is that."""
        directions = [each for each in self._service.models.routes if target in (None, each.target)]
        sources, targets = ({each[side] for each in directions} for side in (0, 1))
        only = sources.pop() if len(sources) == 1 else ""
        return Options(
            "" if source == AUTO else source or only, target or (targets.pop() if len(targets) == 1 else "")
        )

    async def languages(self, _request: Request) -> Response:
        return JSONResponse({**self._service.facts(), "files": list(ENDINGS) if self._documents else []})

    async def healthz(self, _request: Request) -> Response:
        return _status("alive" if self._service.batcher.alive else "broken", self._service.batcher.alive)

    async def readyz(self, _request: Request) -> Response:
        if not self._service.batcher.alive:
            return _status("broken", False)
        return _status("stopping" if self._service.stopping else "ready", not self._service.stopping)

    async def metrics(self, _request: Request) -> Response:
        return Response(self._service.metrics.page(), headers={"Content-Type": _METRICS_KIND})

    async def _read(self, kind: type[Body], request: Request) -> Body:
        """The body of a request, which must be JSON."""
        if content_type(request) != "application/json":
            raise RequestError("unsupported_media_type", "send Content-Type: application/json")
        limits = self._service.limits
        body = await read_body(request, limits.body_bytes, limits.body_seconds)
        return read_body_of(kind, body, limits)


def _status(status: str, is_good: bool) -> Response:
    return JSONResponse({"status": status}, 200 if is_good else 503)


def client_of(request: Request) -> Client:
    """Who asks."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return Client(network_of(request.client.host if request.client else ""), gone)


def network_of(address: str) -> str:
    """Who is behind an address: for IPv4 the address, for IPv6 its network of 64 bits."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    mapped = ip.ipv4_mapped
    return str(mapped or ipaddress.IPv6Network((int(ip), _NETWORK), strict=False))


def content_type(request: Request) -> str:
    """The kind of the body of a request, as it says."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def log_failure(request_id: str, error: BaseException) -> None:
    """Log the kind of an error and the line of code, but not what it says: that may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    log.error("request %s failed: %s at %s", request_id, type(error).__name__, place)


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
