"""What there is under which address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deepwire.serving.connections import client_of
from deepwire.serving.prometheus_metrics import CONTENT_TYPE
from deepwire.serving.queue import TextFailedError
from deepwire.serving.request import Limits, RequestError, place_of, read_request_body
from deepwire.serving.service import GoneError, Service


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str


_PAGE_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}


def _read_page() -> Mapping[str, PageFile]:
    """The files by their addresses; what is not among them cannot be asked for."""
    folder = files("deepwire.serving") / "page"
    return {path: PageFile((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGE_FILES.items()}


PAGE = _read_page()
OPEN = frozenset({*PAGE, "/healthz", "/readyz"})
"""What can be had without a token: it says nothing of the model."""
WATCHED = frozenset({"/healthz", "/readyz", "/metrics"})
"""What is answered to the end, also while the server stops."""
PATHS = frozenset({*OPEN, *WATCHED, "/languages", "/translate"})

_CLIENT_GONE = 499  # no standard status: nobody reads it but the metrics
_Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger("deepwire.serving")


def application(service: Service) -> Starlette:
    """The application: addresses, and errors as JSON."""
    routes = [
        Route("/translate", _translate(service), methods=["POST"]),
        Route("/languages", _languages(service), methods=["GET"]),
        Route("/healthz", _healthz(service), methods=["GET"]),
        Route("/readyz", _readyz(service), methods=["GET"]),
        Route("/metrics", _metrics(service), methods=["GET"]),
        *(Route(path, _file(file), methods=["GET"]) for path, file in PAGE.items()),
    ]
    app = Starlette(
        routes=routes, exception_handlers={RequestError: _request_error, HTTPException: _http_error}
    )
    app.router.redirect_slashes = False
    return app


def error_response(error: RequestError, request_id: str) -> Response:
    """The answer to a refused request."""
    return JSONResponse(error.record(request_id), error.status, error.headers)


async def _request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_response(error, request.state.id)


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router says: there is no such address, or it wants another method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        answer = RequestError("method_not_allowed", f"use {allowed}", headers=error.headers)
    else:
        answer = RequestError("not_found", "there is nothing at this address")
    return error_response(answer, request.state.id)


def _translate(service: Service) -> _Endpoint:
    async def translate(request: Request) -> Response:
        try:
            body = read_request_body(await _read(request, service.limits), service.limits)
            client = client_of(request.client.host if request.client else "")
            answer = await service.translate(body, client, lambda: _gone(request))
        except (GoneError, ClientDisconnect):
            return Response(status_code=_CLIENT_GONE)
        except TextFailedError as error:
            note_failure(request.state.id, error.__cause__ or error)
            raise RequestError("internal", "the model failed on this text", index=error.index) from None
        return JSONResponse(answer)

    return translate


def note_failure(request_id: str, error: BaseException) -> None:
    """Log what went wrong and where."""
    log.error("request %s failed: %s at %s", request_id, *place_of(error))


async def _read(request: Request, limits: Limits) -> bytes:
    """The body of a request.

    Raises:
        RequestError: It is not JSON, too large, or comes too slowly.
        ClientDisconnect: The client has gone away.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError("unsupported_media_type", "send Content-Type: application/json")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RequestError("unsupported_media_type", "send the body as it is, without Content-Encoding")
    too_large = RequestError("too_large", f"the body has more than {limits.body_bytes} bytes")
    # h11 has seen to it that the length is a number, and that nothing is sent beyond it.
    if int(request.headers.get("content-length", "0")) > limits.body_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > limits.body_bytes:
                    raise too_large
    except TimeoutError:
        raise RequestError("body_too_slow", f"no whole body within {limits.body_seconds:g} s") from None
    return bytes(body)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _languages(service: Service) -> _Endpoint:
    async def languages(_request: Request) -> Response:
        return JSONResponse(service.facts())

    return languages


def _healthz(service: Service) -> _Endpoint:
    async def healthz(_request: Request) -> Response:
        alive = service.batcher.alive
        return JSONResponse({"status": "alive" if alive else "broken"}, 200 if alive else 503)

    return healthz


def _readyz(service: Service) -> _Endpoint:
    async def readyz(_request: Request) -> Response:
        if not service.batcher.alive:
            return JSONResponse({"status": "broken"}, 503)
        stopping = service.work.stopping
        return JSONResponse({"status": "stopping" if stopping else "ready"}, 503 if stopping else 200)

    return readyz


def _metrics(service: Service) -> _Endpoint:
    async def metrics(_request: Request) -> Response:
        return Response(service.metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    return metrics


def _file(file: PageFile) -> _Endpoint:
    async def page(_request: Request) -> Response:
        headers = {"Content-Type": file.media_type, "Cache-Control": "no-cache"}
        return Response(file.content, headers=headers)

    return page
