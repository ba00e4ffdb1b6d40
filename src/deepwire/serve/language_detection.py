"""In which of the languages of a server is a text?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from deepwire.data.languages import Direction
from deepwire.data.text.language_guess import language_shares
from deepwire.serve.request import AUTO, RequestError

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


def likely_languages(text: str, among: Iterable[str]) -> list[Detection]:
    """The likely languages of a text, best first, three at most; none where there is no letter to tell by.

    Args:
        text: Some text.
        among: The languages that it can be in; those that py3langid does not know are never chosen.
    """
    shares = language_shares(text[:_ENOUGH], sorted(among))
    detections = [Detection(label, round(100 * share, 1)) for label, share in shares.items()]
    likely = [one for one in detections[1:_MOST_ANSWERS] if one.confidence >= 100 * _LEAST]
    return [*detections[:1], *likely]


class SourceDetector:
    """Finds out in which language texts are that are to be translated.

    Args:
        directions: Those that the server translates.
    """

    def __init__(self, directions: Iterable[Direction]) -> None:
        self._directions = tuple(directions)

    def language_of(self, text: str, target: str | None) -> Detection | None:
        """In which language a text is; None where there is nothing to tell by.

        Raises:
            RequestError: As `among`.
        """
        detections = likely_languages(text, self.among(target))
        return detections[0] if detections else None

    def is_target(self, language: str, target: str | None) -> bool:
        """Whether texts in a language are in the target language already."""
        return language == target or (
            target is None and {direction.target for direction in self._directions} == {language}
        )

    def among(self, target: str | None) -> frozenset[str]:
        """The languages that are translated into this one, and itself.

        Raises:
            RequestError: It is not known which languages there are, or nothing is translated into `target`.
        """
        directions = [direction for direction in self._directions if target in (None, direction.target)]
        if not directions:
            reason = (
                "the languages of the model are not known" if target is None else f"nothing into {target!r}"
            )
            raise RequestError("invalid", f"{AUTO} has no languages to choose from: {reason}")
        targets = {direction.target for direction in directions}
        return frozenset(direction.source for direction in directions) | (
            targets if len(targets) == 1 else frozenset()
        )
