"""HTTP connections that end when a client is too slow, and are not too many, of all clients or of one."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import secrets
from collections import Counter
from functools import lru_cache
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from deepwire.serve.request import Limits, RequestError

_NETWORK = 64  # bits of an IPv6 address that name a customer; the rest is free to choose
log = logging.getLogger("deepwire.serve")


@lru_cache(maxsize=4096)
def client_of(address: str) -> str:
    """Who is behind an address: for IPv4 the address, for IPv6 its network of 64 bits."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(ip), _NETWORK), strict=False))


class Connections:
    """How many connections a server has, of all clients and of each."""

    def __init__(self, limits: Limits) -> None:
        self._most, self._most_of_client = limits.connections, limits.client_connections
        self._of_client = Counter[str]()

    def admit(self, client: str) -> bool:
        """Count a new connection, if there is room for it."""
        if self._of_client[client] >= self._most_of_client or self._of_client.total() >= self._most:
            return False
        self._of_client[client] += 1
        return True

    def forget(self, client: str) -> None:
        """One of those that were admitted has ended."""
        self._of_client[client] -= 1
        if not self._of_client[client]:
            del self._of_client[client]


class ServerConfig(uvicorn.Config):
    """The settings of uvicorn, and our limits."""

    def __init__(self, app: Any, limits: Limits) -> None:
        super().__init__(
            app,
            http=LimitedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=limits.connections,
            timeout_keep_alive=max(1, round(limits.header_seconds)),
            timeout_graceful_shutdown=1,
        )
        self.limits = limits
        self.clients = Connections(limits)


class LimitedProtocol(H11Protocol):
    """A connection.

    From its beginning, and from the first byte of every further request, `header_seconds` run until the
    headers are complete; then the application keeps the time. A client that does not fetch its answers within
    `request_seconds` is cut off.
    """

    config: ServerConfig

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits, self._clients = config.limits, config.clients
        self._client, self._is_admitted = "", False
        self._headers_due: asyncio.TimerHandle | None = None
        self._fetching_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """A client has connected."""
        super().connection_made(transport)
        self._client = client_of(self.client[0] if self.client else "")
        self._is_admitted = self._clients.admit(self._client)
        if not self._is_admitted:
            self._answer(RequestError("too_many_connections", "try again", headers={"Retry-After": "5"}))
            return
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting_for_headers()
        elif not self.transport.is_closing():
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop_waiting_for_headers()
        if self._fetching_due is not None:
            self._fetching_due.cancel()
        if self._is_admitted:
            self._clients.forget(self._client)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """An answer is written, though the client may not have fetched it."""
        super().on_response_complete()
        self._await_fetching()

    def pause_writing(self) -> None:
        """The client fetches its answers more slowly than they are made."""
        super().pause_writing()
        self._await_fetching()

    def send_400_response(self, msg: str) -> None:
        """Answer to what is no HTTP."""
        self._answer(RequestError("bad_request", msg))

    def _await_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(self._limits.header_seconds, self.transport.close)

    def _stop_waiting_for_headers(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _await_fetching(self) -> None:
        if self._fetching_due is None and self.transport.get_write_buffer_size():
            self._fetching_due = self.loop.call_later(self._limits.request_seconds, self._see_if_fetched)

    def _see_if_fetched(self) -> None:
        self._fetching_due = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _answer(self, error: RequestError) -> None:
        """Answer without the application, and close."""
        request = secrets.token_hex(8)
        log.info("%s refused a connection: %s %s", request, error.status, error.code)
        body = json.dumps(error.record(request)).encode()
        headers = {
            "x-request-id": request,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **error.headers,
        }
        lines = [
            f"HTTP/1.1 {error.status} Refused",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        self.transport.close()
