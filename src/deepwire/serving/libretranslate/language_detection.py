"""In which of the languages of a server is a text?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from deepwire.data.text.language_guess import language_code

_ENOUGH = 5000  # characters
_MOST_ANSWERS = 3
_LEAST = 0.01


class Detection(NamedTuple):
    """A language, and how sure that is.

    Attributes:
        language: As the caller writes it.
        confidence: 0 to 100.
    """

    language: str
    confidence: float


class LanguageDetector:
    """Chooses among some languages, by the frequencies of byte sequences (py3langid).

    Args:
        labels: The languages; those that it does not know are never chosen.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._labels: dict[str, str] = {}
        known = set(self._identifier.labels)
        for label in labels:
            code = language_code(label)
            code = {"nb": "no"}.get(code, code) if code not in known else code
            if code in known:
                self._labels.setdefault(code, label)
        if self._labels:
            self._identifier.set_languages(self._labels)

    def detect(self, text: str) -> list[Detection]:
        """The likely languages, best first, three at most; none where there is no letter to tell by."""
        text = text[:_ENOUGH]
        if not self._labels or not any(character.isalpha() for character in text):
            return []
        ranked: list[tuple[str, float]] = self._identifier.rank(text)
        found = [Detection(self._labels[code], round(100 * float(share), 1)) for code, share in ranked]
        return [found[0], *(one for one in found[1:_MOST_ANSWERS] if one.confidence >= 100 * _LEAST)]
