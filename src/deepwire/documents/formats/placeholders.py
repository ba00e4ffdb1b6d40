"""Parts of a message that a program fills in or reads stay: %s, {name}, ${x}, tags and addresses."""

from __future__ import annotations

from collections.abc import Iterator

from deepwire.data.text.placeholders import find_placeholders
from deepwire.documents.document import Run


def with_placeholders(text: str) -> Iterator[tuple[int, int, Run]]:
    """The text in runs, placeholders but for numbers fixed: where each begins and ends."""
    at = 0
    for placeholder in find_placeholders(text):
        if placeholder.kind == "number":
            continue
        if placeholder.begin > at:
            yield at, placeholder.begin, Run(text[at : placeholder.begin])
        yield placeholder.begin, placeholder.end, Run(text[placeholder.begin : placeholder.end], fixed=True)
        at = placeholder.end
    if at < len(text) or not text:
        yield at, len(text), Run(text[at:])
