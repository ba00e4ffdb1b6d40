"""The body of `POST /translate`: JSON with fixed keys, read without trusting any of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deepwire.data.text.one_line import plain
from deepwire.serving.limits import Limits
from deepwire.serving.refusal import Refusal

_SHOWN = 80

Language = Annotated[str, Field(max_length=40)]


class Body(BaseModel):
    """What a client asks for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    text: str | None = None
    """One text; either this or `texts`."""
    texts: list[str] | None = Field(None, fail_fast=True)
    """Texts; each is translated on its own."""
    target: Language | None = None
    """The language to translate into."""
    source: Language | None = None
    """The language of the texts."""
    beam: int | None = Field(None, ge=1)
    """Hypotheses kept per sentence; default: that of the server."""
    n_best: int | None = Field(None, ge=1)
    """Asks for the best so many translations of each text, with scores."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give either text or texts")
        return self

    @property
    def lines(self) -> list[str]:
        """The texts; line breaks and NUL are spaces, for a text is one line to the model."""
        texts = [self.text] if self.text is not None else self.texts or []
        return [plain(text) for text in texts]


def read_body(body: bytes, limits: Limits) -> Body:
    """Read and check what a client has sent.

    Raises:
        Refusal: It is no JSON, has other keys or types, or more than the limits allow.
    """
    try:
        found = Body.model_validate(_parsed(body))
    except ValidationError as error:
        raise _refusal(error) from None
    _check_texts(found, limits)
    return found


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except UnicodeDecodeError as fault:
        raise Refusal("bad_json", f"the body is not UTF-8: byte {fault.start}") from None
    except json.JSONDecodeError as fault:
        raise Refusal("bad_json", f"not JSON: {fault.msg}, at character {fault.pos}") from None
    except RecursionError:
        raise Refusal("bad_json", "not JSON that anybody reads: too deep") from None
    except ValueError as fault:
        raise Refusal("bad_json", f"not JSON: {str(fault)[:_SHOWN]}") from None


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def _no_number(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON number")


def _refusal(error: ValidationError) -> Refusal:
    """The first fault, without what the client has sent but for the names of its keys."""
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(printable(str(part))[:_SHOWN] for part in fault["loc"])
    text = fault["msg"].removeprefix("Value error, ")
    index = next((part for part in fault["loc"] if isinstance(part, int)), None)
    return Refusal("invalid", f"{where}: {text}" if where else text, index=index)


def _check_texts(body: Body, limits: Limits) -> None:
    lines = body.lines
    if len(lines) > limits.texts:
        raise Refusal("invalid", f"texts: {len(lines)} texts, but at most {limits.texts} at a time")
    for index, line in enumerate(lines):
        if len(line) > limits.characters:
            raise Refusal(
                "invalid", f"text {index}: {len(line)} characters, at most {limits.characters}", index=index
            )
        if line != printable(line):
            raise Refusal("invalid", f"text {index}: half a surrogate pair is no character", index=index)
    for name in ("target", "source"):
        language = getattr(body, name)
        if language is not None and language != printable(language):
            raise Refusal("invalid", f"{name}: half a surrogate pair is no character")


def printable(text: str) -> str:
    """`text` with ? for halves of surrogate pairs, which no UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()
