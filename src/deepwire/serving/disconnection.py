"""Clients that go away before their answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

Disconnected = Callable[[], Awaitable[None]]
"""Returns when the client has gone away."""


class DisconnectedError(Exception):
    """The client has gone away."""


async def wait_for_disconnect(request: Request) -> None:
    """Wait until the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
