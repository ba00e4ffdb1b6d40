"""Lines in capitals and in title case: translated as ordinary sentences, and written as they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepwire.data.text.casing import Cost, OrdinaryCase, OrdinaryLine
from deepwire.data.vocabulary import UNK, Vocabulary
from deepwire.decoding.terminology import Terminology
from deepwire.decoding.translation_io import Request, Translate, Translation


class LineCasing:
    """Gives a model ordinary sentences to translate, and the translations the case of their lines.

    Lines whose translation must begin with a given text stay as they are.

    Args:
        vocabulary: Of the source; it tells which form of a word is frequent.
        terms: Translations that terms must have; those that are written like `iOS` stay so.
        target: The language of the translations, where it is known and requests do not name it; else empty.
    """

    def __init__(self, vocabulary: Vocabulary, terms: Terminology | None, target: str) -> None:
        self._vocabulary, self._target = vocabulary, target
        self._ordinary = OrdinaryCase(self._costs)
        texts = [text for term in (terms.terms if terms else ()) for text in term.texts()]
        self._kept = [word for text in texts for word in text.split() if word[1:] != word[1:].lower()]

    def translated(
        self, lines: Sequence[int], requests: Sequence[Request], translate: Translate
    ) -> list[Translation]:
        """Translations of requests; `translate` gives those of ordinary sentences."""
        ordinary = [None if request.prefix else self._ordinary.of(request.text) for request in requests]
        asked = [
            request if line is None else replace(request, text=line.text)
            for request, line in zip(requests, ordinary, strict=True)
        ]
        return [
            translation if line is None else self._restored(translation, request, line)
            for translation, request, line in zip(translate(lines, asked), requests, ordinary, strict=True)
        ]

    def _restored(self, translation: Translation, request: Request, line: OrdinaryLine) -> Translation:
        language = request.to or self._target
        candidates = tuple(
            replace(candidate, text=line.restored(candidate.text, language, self._kept))
            for candidate in translation.candidates
        )
        return replace(translation, request=request, candidates=candidates)

    def _costs(self, words: Sequence[str]) -> list[Cost]:
        return [(ids.count(UNK), len(ids)) for ids in self._vocabulary.encode_lines(words)]
