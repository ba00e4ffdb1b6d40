"""A server from its first connection to its last answer, and what is around every request."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from deepwire.serve.access import Hosts, Token, is_of_stranger
from deepwire.serve.request import Limits, RequestError
from deepwire.serve.routes import WATCHED, Site, log_failure, own_site
from deepwire.serve.service import Service

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""In every answer; `Cache-Control: no-store`, too, where nothing else is said."""

LINGER_SECONDS = 0.5
"""How long a client may go on sending a body that is refused (RFC 9112, section 9.6)."""
_LONGEST_METHOD = 10
_STOPPING = RequestError("stopping", "the server is being stopped", headers={"Retry-After": "10"})
_WRONG_HOST = RequestError(
    "wrong_host", "this server has another name; deepwire serve --host-name NAME gives it one"
)
_STRANGER = RequestError(
    "forbidden", "pages of other servers cannot use this one; deepwire serve --cors ORIGIN admits them"
)
_ONLY_READ = frozenset({"GET", "HEAD", "OPTIONS"})

log = logging.getLogger("deepwire.serve")


class RequestMiddleware:
    """The whole application of a server.

    Args:
        service: Translates.
        token: What clients must send; None = nothing.
        hosts: The names of the server that clients may use; None = any.
        site: What it answers; None = deepwire's own interface.
    """

    def __init__(
        self,
        service: Service,
        token: Token | None = None,
        hosts: Hosts | None = None,
        site: Site | None = None,
    ) -> None:
        self._service, self._token, self._hosts = service, token, hosts
        self._site = own_site(service) if site is None else site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        exchange = _Exchange(scope, receive, send, self._service, self._site.paths)
        try:
            refused = self._refuse(scope)
            if refused is None:
                await self._site.app(scope, exchange.receive, exchange.send)
            else:
                await self._answer(refused, exchange)
        except asyncio.CancelledError:  # the time for stopping is over
            if exchange.status is None:
                await self._answer(_STOPPING, exchange)
        except Exception as error:  # a fault of ours: it is answered by now, and the server lives on
            log_failure(exchange.id, error)
        finally:
            exchange.end()

    def close(self) -> None:
        """Remove what the site keeps on disk."""
        self._site.close()

    async def _answer(self, error: RequestError, exchange: _Exchange) -> None:
        response = self._site.refuse(error, exchange.scope["path"], exchange.id)
        await response(exchange.scope, exchange.receive, exchange.send)

    def _refuse(self, scope: Scope) -> RequestError | None:
        """Why the request is not even looked at."""
        path, headers = scope["path"], dict(scope["headers"])
        if self._hosts is not None and not self._hosts.admit(headers.get(b"host")):
            return _WRONG_HOST
        if self._service.stopping and path not in WATCHED:
            return _STOPPING
        if self._site.origins and scope["method"] == "OPTIONS":
            return None
        if scope["method"] not in _ONLY_READ and is_of_stranger(headers, self._site.origins):
            return _STRANGER
        if self._token is None or self._site.is_open(path):
            return None
        if self._token.admits(headers.get(b"authorization")):
            return None
        return RequestError(
            "unauthorized",
            "send Authorization: Bearer, and the token of this server",
            headers={"WWW-Authenticate": "Bearer"},
        )


class _Exchange:
    """A request and its answer, as they go by."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, service: Service, paths: frozenset[str]
    ) -> None:
        self.scope = scope
        self.id = secrets.token_hex(8)
        self.status: int | None = None
        self._receive, self._send, self._service = receive, send, service
        self._begun = time.monotonic()
        # Other addresses are made up by clients, and there is no end to them.
        self._path = scope["path"] if scope["path"] in paths else "other"
        self._method = scope["method"][:_LONGEST_METHOD]
        headers = Headers(scope=scope)
        self._unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["id"] = self.id

    async def receive(self) -> Message:
        message = await self._receive()
        if not message.get("more_body", False):
            self._unread = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
            headers["X-Request-Id"] = self.id
            if self._unread or self._service.stopping:
                headers["Connection"] = "close"
        elif self._unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._discard()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _discard(self) -> None:
        """Read on for a moment: who is still sending when the connection closes misses the answer."""
        left = self._service.limits.body_bytes
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while self._unread and left > 0:
                    left -= len((await self.receive()).get("body", b""))

    def end(self) -> None:
        seconds = time.monotonic() - self._begun
        metrics = self._service.metrics
        metrics.requests.labels(self._path, str(self.status)).inc()
        metrics.seconds.labels(self._path).observe(seconds)
        log.info("%s %s %s %s %.0f ms", self.id, self._method, self._path, self.status, seconds * 1000)


class _LimitedProtocol(H11Protocol):
    """A connection.

    From its beginning, and from the first byte of every further request, `header_seconds` run until the
    headers are complete; then the application keeps the time.
    """

    config: _ServerConfig

    def __init__(
        self,
        config: _ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting_for_headers()
        elif not self.transport.is_closing():
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting_for_headers()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        if self._headers_due is None:
            seconds = self.config.limits.header_seconds
            self._headers_due = self.loop.call_later(seconds, self.transport.close)

    def _stop_waiting_for_headers(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None


class _ServerConfig(uvicorn.Config):
    def __init__(self, app: Any, limits: Limits) -> None:
        super().__init__(
            app,
            http=_LimitedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=limits.connections,
            limit_concurrency=limits.connections + 1,  # one that is refused is counted too
            timeout_keep_alive=max(1, round(limits.header_seconds)),
            timeout_graceful_shutdown=1,
        )
        self.limits = limits


class Server(uvicorn.Server):
    """Answers requests until it is told to stop; then it answers what it has taken and refuses the rest.

    Attributes:
        stopped_by: The signal that ended it; None while there was none.
    """

    def __init__(self, guard: RequestMiddleware, service: Service) -> None:
        super().__init__(_ServerConfig(guard, service.limits))
        self.stopped_by: signal.Signals | None = None
        self._guard, self._service = guard, service
        self._latest = 0.0
        self._begun: Callable[[], object] = lambda: None

    def serve_on(self, bound: socket.socket, begun: Callable[[], object] = lambda: None) -> None:
        """Serve on a socket until a signal comes (SIGTERM or SIGINT; the second one ends it at once).

        `begun` is called when it answers requests and signals.
        """
        self._begun = begun
        self._service.start()
        try:
            asyncio.run(self.serve(sockets=[bound]))
        finally:
            self._guard.close()  # at once: whoever serves may end the process without tidying up
            self._service.close(max(0.0, self._latest - time.monotonic()))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen; signals are heard by now."""
        await super().startup(sockets=sockets)
        self._begun()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn's
        """A signal has come."""
        self.stop(signal.Signals(sig))

    def stop(self, by: signal.Signals) -> None:
        """Take no more requests, and end when those in work are answered or the time for it is over."""
        if self.stopped_by is not None:
            self._latest = 0.0
            self.should_exit = self.force_exit = True
            return
        self.stopped_by = by
        self._latest = time.monotonic() + self._service.limits.drain_seconds
        self._service.stopping = True
        log.info("stopping: %d requests in work", self._service.requests)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to end."""
        if await super().on_tick(counter):
            return True
        done = not self._service.requests or time.monotonic() >= self._latest
        return self.stopped_by is not None and done
