"""A request that gets no translation: the HTTP status, a code for programs and a sentence for people."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path

STATUS: Mapping[str, int] = {
    "bad_request": 400,
    "bad_json": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_too_slow": 408,
    "too_large": 413,
    "unsupported_media_type": 415,
    "wrong_host": 421,
    "invalid": 422,
    "queue_full": 429,
    "internal": 500,
    "stopping": 503,
    "too_many_connections": 503,
    "out_of_time": 503,
    "broken": 503,
}
"""Every code that an answer can have, with its HTTP status."""


class RequestError(Exception):
    """Why a request is refused.

    Args:
        code: One of `STATUS`.
        message: What is wrong and what would be right.
        index: Which text is wrong, counted from 0.
        headers: Further headers of the answer.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        index: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.index, self.headers = code, message, index, dict(headers or {})

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.code]

    def record(self, request: str | None = None) -> dict[str, object]:
        """The answer as JSON; `request` is the id under which the server's log knows the request."""
        error: dict[str, object] = {"code": self.code, "message": self.message}
        if self.index is not None:
            error["index"] = self.index
        if request is not None:
            error["request"] = request
        return {"error": error}


def place_of(error: BaseException) -> tuple[str, str]:
    """The kind of an error and the line of code for a log, but not what it says: that may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    return type(error).__name__, place
