"""Texts that are split into sentences: what is translated of them, and the answer, sentence by sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepwire.data.text.sentences import SentenceSplitter, TextSegments
from deepwire.decoding.translation_io import Translation
from deepwire.serving.line_answers import candidate_record, links_record


@dataclass(frozen=True)
class SplitTexts:
    """Texts in sentences.

    Attributes:
        segments: The sentences of each text, and what stands between them.
        sentences: What is to be translated, each different sentence once.
        owners: The text in which each of these stands first.
    """

    segments: tuple[TextSegments, ...]
    sentences: tuple[str, ...]
    owners: tuple[int, ...]

    @classmethod
    def of(cls, texts: Sequence[str], splitter: SentenceSplitter) -> SplitTexts:
        """Split texts."""
        segments = tuple(splitter.split(text.replace("\0", " ")) for text in texts)
        owners: dict[str, int] = {}
        for index, found in enumerate(segments):
            for place, sentence in enumerate(found.texts):
                if place not in found.too_long:
                    owners.setdefault(sentence, index)
        return cls(segments, tuple(owners), tuple(owners.values()))

    def answers(
        self, translations: Sequence[Translation], language: str, *, scores: bool, alignment: bool = False
    ) -> list[dict[str, object]]:
        """The answer to each text.

        Args:
            translations: Those of `sentences`.
            language: That of the translations; empty = not known.
            scores: Whether candidates are told.
            alignment: Whether it is told which words of a sentence and its translation belong together.
        """
        found = dict(zip(self.sentences, translations, strict=True))
        return [_answer(segments, found, language, (scores, alignment)) for segments in self.segments]


def _answer(
    segments: TextSegments, found: dict[str, Translation], language: str, told: tuple[bool, bool]
) -> dict[str, object]:
    scores, alignment = told
    records: list[dict[str, object]] = []
    texts: list[str] = []
    for place, sentence in enumerate(segments.texts):
        if place in segments.too_long:
            texts.append(sentence)
            records.append({"source": sentence, "text": sentence, "untranslated": True})
            continue
        translation = found[sentence]
        texts.append(translation.text)
        record: dict[str, object] = {"source": sentence, "text": translation.text}
        if alignment:
            record |= links_record(translation.candidates[0])
        if scores:
            record["candidates"] = [
                candidate_record(one) | (links_record(one) if alignment else {})
                for one in translation.candidates
            ]
        records.append(record)
    gaps = segments.gaps_for(language)
    return {"text": segments.joined(texts, language), "sentences": records, "gaps": gaps}
