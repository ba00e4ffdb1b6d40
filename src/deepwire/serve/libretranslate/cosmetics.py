"""Small corrections of a translation that clients have come to expect."""

from __future__ import annotations

import re

from deepwire.serve.documents.formats.character_references import unescaped

# The signs of other scripts belong to the same class as the others: none takes the place of the other.
_ENDS = (".。।۔։።။", "!！", "?？؟", ",，、،", ";；؛")
_GREEK_QUESTION = re.compile(r"[\u0370-\u03ff\u1f00-\u1fff][;\u037e]\s*\Z")
_ELLIPSIS = re.compile(r"(?:\.\.|…)\s*\Z")
_ENTITY = re.compile(r"&(#\d+;?|#[xX][0-9a-fA-F]+;?|\w+;)")


def corrected(source: str, translation: str) -> str:
    """The translation with the entities, repetitions, case and final punctuation that the source suggests."""
    if not source.strip() or not translation.strip():
        return translation
    if not _ENTITY.search(source):
        translation = unescaped(translation)
    translation = _without_repetition(source, translation)
    return _with_end(source, _with_case(source, translation))


def _without_repetition(source: str, translation: str) -> str:
    """One word of source that became the same word several times is one word."""
    words = translation.split()
    if len(source.split()) != 1 or len(words) < 2:
        return translation
    return words[0] if len({word.strip(".,;:!?").casefold() for word in words}) == 1 else translation


def _with_case(source: str, translation: str) -> str:
    if source.islower():
        return translation.lower()
    if source.isupper() and sum(map(str.isalpha, source)) > 1:
        return translation.upper()
    first, start = source.lstrip()[:1], len(translation) - len(translation.lstrip())
    letter = translation[start]
    if first.isupper() and letter.islower():
        return translation[:start] + letter.upper() + translation[start + 1 :]
    if first.islower() and letter.isupper() and not translation[start + 1 : start + 2].isupper():
        return translation[:start] + letter.lower() + translation[start + 1 :]
    return translation


def _with_end(source: str, translation: str) -> str:
    wanted, have = _end(source), _end(translation)
    if _class(wanted) == _class(have) or _ELLIPSIS.search(source) or _ELLIPSIS.search(translation):
        return translation
    body = translation.rstrip()
    space = translation[len(body) :]
    body = body[: len(body) - len(have)].rstrip() if len(body) > len(have) else body
    return body + (_class(wanted)[:1] if body.isascii() else wanted) + space


def _end(text: str) -> str:
    if _GREEK_QUESTION.search(text):
        return "?"
    last = text.rstrip()[-1:]
    return last if _class(last) else ""


def _class(sign: str) -> str:
    return next((signs for signs in _ENDS if sign and sign in signs), "")
