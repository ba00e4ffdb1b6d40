"""In which of the languages of a server is a text?"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import NamedTuple

from deepwire.data.languages import Direction
from deepwire.data.text.language_guess import language_code
from deepwire.data.text.language_profiles import LanguageProfiles
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


class LanguageDetector:
    """Chooses among some languages.

    Where the models know what all of them look like from their own text, that decides; otherwise it is
    frequencies of byte sequences (py3langid).

    Args:
        labels: The languages; those that are known in neither way are never chosen.
        profiles: What the models know; None for models that were made elsewhere.
    """

    def __init__(self, labels: Iterable[str], profiles: Iterable[LanguageProfiles | None] = ()) -> None:
        self._labels = dict.fromkeys(labels)
        known = LanguageProfiles.together(
            model_profiles for model_profiles in profiles if model_profiles is not None
        )
        self._profiles = known if set(self._labels) <= set(known.labels) else None

    def detect(self, text: str, among: Collection[str] | None = None) -> list[Detection]:
        """The likely languages, best first, three at most; none where there is no letter to tell by.

        Args:
            text: Some text.
            among: The languages that it can be in; None = all.
        """
        text = text[:_ENOUGH]
        if not any(character.isalpha() for character in text):
            return []
        among = [label for label in self._labels if among is None or label in among]
        if self._profiles is not None:
            shares = self._profiles.shares(text, among)
        else:
            shares = self._byte_sequences.shares(text, among)
        detections = [Detection(label, round(100 * share, 1)) for label, share in shares.items()]
        likely = [
            detection for detection in detections[1:_MOST_ANSWERS] if detection.confidence >= 100 * _LEAST
        ]
        return [*detections[:1], *likely]

    @cached_property
    def _byte_sequences(self) -> _ByteSequences:
        return _ByteSequences(self._labels)


class _ByteSequences:
    """py3langid, restricted to some languages."""

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

    def shares(self, text: str, among: Collection[str]) -> dict[str, float]:
        """How probable each language is, most probable first, together 1."""
        if not self._labels:
            return {}
        ranked = ((self._labels[code], float(share)) for code, share in self._identifier.rank(text))
        shares = {label: share for label, share in ranked if label in among}
        total = sum(shares.values()) or 1.0
        return {label: share / total for label, share in shares.items()}


class SourceDetector:
    """Finds out in which language texts are that are to be translated.

    Args:
        directions: Those that the server translates.
        profiles: What its models know of their languages.
    """

    def __init__(
        self, directions: Iterable[Direction], profiles: Iterable[LanguageProfiles | None] = ()
    ) -> None:
        self._directions, self._profiles = tuple(directions), tuple(profiles)

    @cached_property
    def _detector(self) -> LanguageDetector:
        labels = sorted({label for direction in self._directions for label in direction})
        return LanguageDetector(labels, self._profiles)

    def detect(self, text: str, among: Collection[str]) -> list[Detection]:
        """The likely languages of a text, of those that `among` gives."""
        return self._detector.detect(text, among)

    def language_of(self, text: str, target: str | None) -> Detection | None:
        """In which language a text is; None where there is nothing to tell by.

        Raises:
            RequestError: As `among`.
        """
        detections = self.detect(text, self.among(target))
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
