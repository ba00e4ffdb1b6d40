"""How long a request may take, and whether a text of many sentences can be translated by then."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from deepwire.serve.request import RequestError

_HOPELESS = 2
"""A text is given up where the rest of it needs so many times as long as there is left."""

_due: ContextVar[float] = ContextVar("when the time of the request is over", default=math.inf)


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Around the work on a request.

    Raises:
        RequestError: It took longer.
    """
    before = _due.set(time.monotonic() + seconds)
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise RequestError(
            "out_of_time", f"not translated within {seconds:g} s", headers={"Retry-After": "10"}
        ) from None
    finally:
        _due.reset(before)


class LongText:
    """A text that is translated a part after the other, in the time of its request.

    Args:
        sentences: How many it has.
    """

    def __init__(self, sentences: int) -> None:
        self._sentences, self._begun, self._due = sentences, time.monotonic(), _due.get()

    def require_time(self, done: int) -> None:
        """See that there is hope for the rest: who waits in vain should know it early.

        Args:
            done: How many sentences are translated.

        Raises:
            RequestError: At the pace so far, the time will be over long before the end.
        """
        now = time.monotonic()
        needed = (self._sentences - done) * (now - self._begun) / done if done else 0
        if needed > _HOPELESS * (self._due - now):
            most = done * (self._due - self._begun) / (now - self._begun)
            said = f"{self._sentences:,} sentences, of which about {most:,.0f} can be translated in time"
            raise RequestError("too_large", f"{said}: send them in parts")
