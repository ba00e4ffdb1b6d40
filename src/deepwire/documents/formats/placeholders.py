"""Parts of a message that a program fills in or reads stay: %s, {name}, ${x}, tags and addresses."""

from __future__ import annotations

from deepwire.data.text.placeholders import find_placeholders
from deepwire.documents.document import Run


def with_placeholders(text: str) -> list[tuple[int, int, Run]]:
    """The text in runs, placeholders but for numbers fixed: where each begins and ends.

    Where there are several they are in one element, 0, as it were, within which their order may change.
    """
    parts: list[tuple[int, int, Run]] = []
    at = 0
    for placeholder in find_placeholders(text):
        if placeholder.kind == "number":
            continue
        if placeholder.begin > at:
            parts.append((at, placeholder.begin, Run(text[at : placeholder.begin])))
        at = placeholder.end
        parts.append((placeholder.begin, at, Run(text[placeholder.begin : at], fixed=True)))
    if at < len(text) or not text:
        parts.append((at, len(text), Run(text[at:])))
    marks = (0,) if len(parts) > 1 else ()
    return [(begin, end, run._replace(marks=marks)) for begin, end, run in parts]
