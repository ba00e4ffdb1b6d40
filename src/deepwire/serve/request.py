"""A request: its limits, its body read without trusting any of it, its lines, and errors that answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deepwire.config.section import Section
from deepwire.data.text.pairs import is_blank
from deepwire.data.text.sentences import LINE_BREAK


class Limits(Section):
    """The limits of a server; seconds where nothing else is said."""

    header_seconds: float = Field(5.0, gt=0, le=3600, description="from connecting to the end of the headers")
    body_seconds: float = Field(10.0, gt=0, le=3600, description="for sending the body of a request")
    request_seconds: float = Field(60.0, gt=0, le=3600, description="from the headers to the answer")
    drain_seconds: float = Field(25.0, ge=0, le=3600, description="for requests in work when it is stopped")
    body_bytes: int = Field(1 << 20, ge=1, le=1 << 30, description="size of the body of a request")
    texts: int = Field(128, ge=1, le=100_000, description="texts, or lines of text, in a request")
    characters: int = Field(5000, ge=1, le=1_000_000, description="characters in a text")
    beam: int = Field(8, ge=1, le=1000, description="beam that a request can ask for")
    queue: int = Field(
        8192,
        ge=1,
        le=1_000_000,
        description="texts that wait or are in work, at most half of them of one client",
    )
    file_bytes: int = Field(10 << 20, ge=1, le=1 << 30, description="size of an uploaded document")
    file_seconds: float = Field(600.0, gt=0, le=86400, description="for translating a document")
    connections: int = Field(512, ge=1, le=100_000, description="connections at a time")


STATUS: Mapping[str, int] = {
    "bad_json": 400,
    "unauthorized": 401,
    "forbidden": 403,
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
        self, code: str, message: str, *, index: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.index, self.headers = code, message, index, dict(headers or {})

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.code]


@contextmanager
def renumbered(places: Sequence[int] | Mapping[int, int]) -> Iterator[None]:
    """Errors about a text name it by the number that it has in the whole request."""
    try:
        yield
    except RequestError as error:
        if error.index is not None:
            place = places[error.index]
            error.message = error.message.replace(f"text {error.index}", f"text {place}", 1)
            error.index = place
        raise


class TextLines(NamedTuple):
    """A text, cut at its line breaks; a model translates one line at a time.

    Attributes:
        lines: What is between the breaks, without NUL, which this toolkit takes for a damaged line.
        breaks: What comes after each line but the last.
    """

    lines: tuple[str, ...]
    breaks: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> TextLines:
        """Cut a text; one without breaks is one line."""
        parts = LINE_BREAK.split(text)
        return cls(tuple(line.replace("\0", " ") for line in parts[::2]), tuple(parts[1::2]))

    def joined(self, translations: Sequence[str]) -> str:
        """The translations of the lines with the breaks of the text."""
        pairs = zip(translations, (*self.breaks, ""), strict=True)
        return "".join(translation + line_break for translation, line_break in pairs)


Language = Annotated[str, Field(max_length=40)]


AUTO = "auto"
"""The source where the server is to find out in which language the texts are."""


class TextBody(BaseModel):
    """Texts that a client sends."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    text: str | None = None
    """One text; either this or `texts`."""
    texts: list[str] | None = Field(None, fail_fast=True)
    """Texts; each is looked at on its own."""
    target: Language | None = None
    """The language to translate into."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give either text or texts")
        return self

    @property
    def all(self) -> list[str]:
        """The texts, however they were given."""
        return [self.text] if self.text is not None else self.texts or []


class RequestBody(TextBody):
    """Texts to translate, and how."""

    source: Language | None = None
    """The language of the texts; `auto` = to be found out."""
    sentences: bool = False
    """Whether lines are split into sentences, which are translated and answered one by one."""
    beam: int | None = Field(None, ge=1)
    """Hypotheses kept per sentence; default: that of the server."""
    n_best: int | None = Field(None, ge=1)
    """Asks for the best so many translations of each text, with scores."""
    alignment: bool = False
    """Asks which words of each text and of its translation belong together."""


Body = TypeVar("Body", bound=TextBody)


def read_body_of(kind: type[Body], body: bytes, limits: Limits) -> Body:
    """Read and check what a client asks for.

    Raises:
        RequestError: It is no JSON, has other keys or types, or more than the limits allow.
    """
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise request_error(error) from None
    _check_texts(request, limits)
    return request


def _check_texts(body: TextBody, limits: Limits) -> None:
    texts = body.all
    if len(texts) > limits.texts:
        raise RequestError("invalid", f"texts: {len(texts)} texts, but at most {limits.texts} at a time")
    for index, text in enumerate(texts):
        if len(text) > limits.characters:
            raise RequestError(
                "invalid", f"text {index}: {len(text)} characters, at most {limits.characters}", index=index
            )
    lines = sum(not is_blank(line) for text in texts for line in TextLines.of(text).lines)
    if lines > limits.texts:
        raise RequestError("invalid", f"{lines} lines of text, but at most {limits.texts} at a time")


_SHOWN = 80


def request_error(error: ValidationError) -> RequestError:
    """The first fault; of what the client has sent only the names of keys."""
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return RequestError("bad_json", fault["msg"])
    index = next((part for part in fault["loc"] if isinstance(part, int)), None)
    where = f"text {index}" if index is not None else ".".join(map(str, fault["loc"]))[:_SHOWN]
    # pydantic's own words never quote the value, which may be a text.
    text = ": ".join(filter(None, (where, fault["msg"])))
    return RequestError("invalid", printable(text), index=index)


def printable(text: str) -> str:
    """`text` with ? for halves of surrogate pairs, which no UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()
