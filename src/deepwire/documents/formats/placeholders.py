"""Parts of a message that a program fills in or reads stay: %s, {name}, ${x}, tags and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deepwire.documents.document import Run

_PLACEHOLDER = re.compile(
    r"%(?:\([^)\s]+\))?[-+ #0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|j|t)?[diouxXeEfgGcrsa@]"
    r"|%\d+\$[a-z]|%%"
    r"|\$?\{\{?[^{}\n]*\}\}?"
    r"|</?[A-Za-z][^<>\n]*>"
    r"|https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
)


def with_placeholders(text: str) -> Iterator[tuple[int, int, Run]]:
    """The text in runs, placeholders fixed: where each begins and ends."""
    at = 0
    for match in _PLACEHOLDER.finditer(text):
        if match.start() > at:
            yield at, match.start(), Run(text[at : match.start()])
        yield match.start(), match.end(), Run(match[0], fixed=True)
        at = match.end()
    if at < len(text) or not text:
        yield at, len(text), Run(text[at:])
