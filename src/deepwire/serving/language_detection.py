"""In which of the languages of a server is a text?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from deepwire.data.languages import Direction
from deepwire.data.text.language_guess import language_code
from deepwire.serving.request import AUTO, RequestError

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

    def detect(self, text: str, among: Collection[str] | None = None) -> list[Detection]:
        """The likely languages, best first, three at most; none where there is no letter to tell by.

        Args:
            text: Some text.
            among: The languages that it can be in; None = all.
        """
        text = text[:_ENOUGH]
        if not any(character.isalpha() for character in text):
            return []
        shares = {label: share for label, share in self._shares(text) if among is None or label in among}
        total = sum(shares.values()) or 1.0
        found = [Detection(label, round(100 * share / total, 1)) for label, share in shares.items()]
        likely = [one for one in found[1:_MOST_ANSWERS] if one.confidence >= 100 * _LEAST]
        return [*found[:1], *likely]

    def _shares(self, text: str) -> list[tuple[str, float]]:
        if not self._labels:
            return []
        return [(self._labels[code], float(share)) for code, share in self._identifier.rank(text)]


class SourceDetector:
    """Finds out in which language texts are that are to be translated.

    Args:
        directions: Those that the server translates.
    """

    def __init__(self, directions: Iterable[Direction]) -> None:
        self._directions = tuple(directions)

    @cached_property
    def _detector(self) -> LanguageDetector:
        return LanguageDetector(sorted({label for way in self._directions for label in way}))

    def detect(self, texts: Sequence[str], target: str | None) -> list[list[Detection]]:
        """The likely languages of each text that somebody wants to have in the language `target`.

        Raises:
            RequestError: It is not known which languages there are, or nothing is translated into `target`.
        """
        among = self._among(target)
        return [self._detector.detect(text, among) for text in texts]

    def language_of(self, texts: Sequence[str], target: str | None) -> Detection | None:
        """In which language texts are, all together; None where there is nothing to tell by.

        Raises:
            RequestError: As `detect`.
        """
        found = self._detector.detect(" ".join(texts), self._among(target))
        return found[0] if found else None

    def is_target(self, language: str, target: str | None) -> bool:
        """Whether texts in a language are in the target language already."""
        return language == target or (
            target is None and {way.target for way in self._directions} == {language}
        )

    def _among(self, target: str | None) -> frozenset[str]:
        """The languages that are translated into this one, and itself."""
        ways = [way for way in self._directions if target in (None, way.target)]
        if not ways:
            what = (
                "the languages of the model are not known" if target is None else f"nothing into {target!r}"
            )
            raise RequestError("invalid", f"{AUTO} has no languages to choose from: {what}")
        targets = {way.target for way in ways}
        return frozenset(way.source for way in ways) | (targets if len(targets) == 1 else frozenset())
