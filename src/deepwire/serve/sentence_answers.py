"""Texts that are split into sentences: what is translated of them, and the answer, sentence by sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepwire.data.text.sentences import SentenceSplitter, TextSegments
from deepwire.decoding.translation_io import Translation
from deepwire.serve.documents.distinct_texts import DistinctTexts
from deepwire.serve.line_answers import candidate_record, links_record


@dataclass(frozen=True)
class SplitTexts:
    """Texts in sentences.

    Attributes:
        segments: The sentences of each text, and what stands between them.
        sentences: What is to be translated: each different sentence once, or all in their order.
        owners: The text in which each of these stands first.
        places: Where among these the sentences of each text are; None: too long to be translated.
        starts: Which of these begin a text, for models that read sentences in their order; else None.
    """

    segments: tuple[TextSegments, ...]
    sentences: tuple[str, ...]
    owners: tuple[int, ...]
    places: tuple[tuple[int | None, ...], ...]
    starts: frozenset[int] | None

    @classmethod
    def of(cls, texts: Sequence[str], splitter: SentenceSplitter, in_order: bool = False) -> SplitTexts:
        """Split texts, for models that read one sentence after the other if `in_order`."""
        segments = tuple(splitter.split(text.replace("\0", " ")) for text in texts)
        distinct = DistinctTexts(in_order=in_order)
        owners, places = list[int](), list[tuple[int | None, ...]]()
        for index, text_segments in enumerate(segments):
            distinct.begin_document()
            places.append(
                tuple(
                    None if number in text_segments.too_long else distinct.place(sentence)
                    for number, sentence in enumerate(text_segments.texts)
                )
            )
            owners += [index] * (len(distinct.texts) - len(owners))
        starts = None if distinct.starts is None else frozenset(distinct.starts)
        return cls(segments, tuple(distinct.texts), tuple(owners), tuple(places), starts)

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
        return [
            _answer(
                segments,
                [None if place is None else translations[place] for place in places],
                language,
                (scores, alignment),
            )
            for segments, places in zip(self.segments, self.places, strict=True)
        ]


def _answer(
    segments: TextSegments,
    translations: Sequence[Translation | None],
    language: str,
    told: tuple[bool, bool],
) -> dict[str, object]:
    scores, alignment = told
    records: list[dict[str, object]] = []
    texts: list[str] = []
    for sentence, translation in zip(segments.texts, translations, strict=True):
        if translation is None:
            texts.append(sentence)
            records.append({"source": sentence, "text": sentence, "untranslated": True})
            continue
        texts.append(translation.text)
        record: dict[str, object] = {"source": sentence, "text": translation.text}
        if alignment:
            record |= links_record(translation.candidates[0])
        if scores:
            record["candidates"] = [
                candidate_record(candidate) | (links_record(candidate) if alignment else {})
                for candidate in translation.candidates
            ]
        records.append(record)
    gaps = segments.gaps_for(language)
    return {"text": segments.joined(texts, language), "sentences": records, "gaps": gaps}
