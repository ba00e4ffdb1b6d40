"""References to characters, such as &amp; and &#228;, as HTML has them."""

from __future__ import annotations

import html
import re

_MANY = re.compile(r"&#([0-9]{8,})")
_BEYOND = "9999999"  # no character has so large a number


def unescaped(text: str) -> str:
    """The text with characters for its references, as browsers show it: U+FFFD where there is no such one.

    However many digits a number has: Python refuses to read more than 4300.
    """
    return html.unescape(_MANY.sub(_with_few_digits, text))


def _with_few_digits(reference: re.Match[str]) -> str:
    digits = reference[1].lstrip("0") or "0"
    return f"&#{digits if len(digits) <= len(_BEYOND) else _BEYOND}"
