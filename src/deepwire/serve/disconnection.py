"""Clients that go away before their answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from starlette.requests import Request

_Result = TypeVar("_Result")
Disconnected = Callable[[], Awaitable[None]]
"""Returns when the client has gone away."""


class DisconnectedError(Exception):
    """The client has gone away."""


async def wait_for_disconnect(request: Request) -> None:
    """Wait until the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def unless_gone(result: asyncio.Future[_Result], disconnected: Disconnected) -> _Result:
    """A result, or the end of the client, whichever comes first; what works on the result goes on.

    Raises:
        DisconnectedError: The client has gone away.
    """
    leaving = asyncio.ensure_future(disconnected())
    either: list[asyncio.Future[_Result] | asyncio.Future[None]] = [result, leaving]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise DisconnectedError
        return result.result()
    finally:
        leaving.cancel()
