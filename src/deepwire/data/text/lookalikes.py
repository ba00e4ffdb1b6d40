"""Characters that a vocabulary does not know, and known ones that look the same."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import permutations
from unicodedata import normalize

_SPACES = "\t\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_WITHOUT_WIDTH = (
    "\u00ad\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
"""Without the joiners, which are spelling, and what says how an emoji looks."""
_MAX_MARKS = 3


def lookalikes(known: Set[str]) -> dict[str, str]:
    """How text with other characters is read: as the known ones that a reader takes it for.

    Text of known characters alone has none of the keys, so it is read as it is.

    Args:
        known: The characters of some text.
    """
    read = dict.fromkeys(_SPACES, " ") | dict.fromkeys(_WITHOUT_WIDTH, "")
    read |= {form: composed for composed in known for form in _decomposed(composed)}
    return {form: same for form, same in read.items() if not set(form) <= known}


def _decomposed(composed: str) -> Iterator[str]:
    """The other forms that Unicode's form C makes this character of."""
    base, *marks = tuple(normalize("NFD", composed))
    for order in permutations(marks) if len(marks) <= _MAX_MARKS else ():
        for place in range(len(order)):
            form = normalize("NFC", base + "".join(order[:place])) + "".join(order[place:])
            if form != composed and normalize("NFC", form) == composed:
                yield form
