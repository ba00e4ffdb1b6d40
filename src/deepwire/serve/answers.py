"""The lines or sentences of a request that are translated, and its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from deepwire.data.text.sentences import SentenceSplitter, TextSegments
from deepwire.decoding.text_alignment import composed
from deepwire.decoding.translation_io import Candidate, Translation
from deepwire.serve.documents.translation_plan import DistinctTexts
from deepwire.serve.request import RequestBody, TextLines

_EMPTY = (Candidate("", (), 0.0, 0.0),)


class LinePosition(NamedTuple):
    """A line of a request: which text, and which line of it, both counted from 0."""

    text: int
    line: int


def places_of(texts: Sequence[TextLines]) -> Iterator[LinePosition]:
    """All lines of texts."""
    for index, text in enumerate(texts):
        for number in range(len(text.lines)):
            yield LinePosition(index, number)


def line_at(texts: Sequence[TextLines], place: LinePosition) -> str:
    """A line of texts."""
    return texts[place.text].lines[place.line]


def by_way_of(first: Translation, second: Translation) -> Translation:
    """A translation of the best translation of a text, aligned with the text itself."""
    before = first.candidates[0].alignment
    candidates = tuple(
        replace(candidate, alignment=composed(before, candidate.alignment))
        if before and candidate.alignment
        else candidate
        for candidate in second.candidates
    )
    return replace(second, candidates=candidates)


def text_record(
    text: TextLines,
    index: int,
    translated: Mapping[LinePosition, Translation],
    scores: bool,
    alignment: bool,
) -> dict[str, object]:
    """A translation as JSON, of a text of several lines with the line breaks of the text.

    With scores, one line has its candidates, and several have a record each under `lines`: the translation of
    a line does not depend on the others. An alignment counts the words of the whole text.
    """
    translations = [translated.get(LinePosition(index, number)) for number in range(len(text.lines))]
    lines = [_line_record(translation, scores, alignment) for translation in translations]
    if len(lines) == 1:
        return lines[0]
    best = ["" if translation is None else translation.text for translation in translations]
    whole: dict[str, object] = {"text": text.joined(best)}
    if alignment:
        whole["alignment"] = _whole_alignment(text.lines, best, translations)
    return {**whole, "lines": lines} if scores else whole


def _whole_alignment(
    lines: Sequence[str], best: Sequence[str], translations: Sequence[Translation | None]
) -> list[list[int]]:
    """Links between the words of all lines."""
    links, counts = [], [0, 0]
    for line, text, translation in zip(lines, best, translations, strict=True):
        aligned = None if translation is None else translation.candidates[0].alignment
        for source, target in () if aligned is None else aligned.word_links:
            links.append([source + counts[0], target + counts[1]])
        counts = [counts[0] + len(line.split()), counts[1] + len(text.split())]
    return links


def candidate_record(candidate: Candidate) -> dict[str, object]:
    """A candidate and its scores, as JSON."""
    return {
        "text": candidate.text,
        "score": candidate.score,
        "log_probability": candidate.log_probability,
    }


def links_record(candidate: Candidate) -> dict[str, object]:
    """Which words of a text and its translation belong together, as JSON."""
    links = () if candidate.alignment is None else candidate.alignment.word_links
    return {"alignment": [list(link) for link in links]}


def _line_record(translation: Translation | None, scores: bool, alignment: bool) -> dict[str, object]:
    """The translation of a line; of an empty one there is none."""
    records: list[dict[str, object]] = []
    for candidate in _EMPTY if translation is None else translation.candidates:
        record: dict[str, object] = candidate_record(candidate) if scores else {"text": candidate.text}
        records.append(record | (links_record(candidate) if alignment else {}))
    best = {name: value for name, value in records[0].items() if name in ("text", "alignment")}
    return {**best, "candidates": records} if scores else best


def as_it_is(text: str, body: RequestBody) -> dict[str, object]:
    """The answer to a text that is in the target language already, or in none."""
    record: dict[str, object] = {"text": text}
    if body.alignment:
        record["alignment"] = [[place, place] for place in range(len(text.split()))]
    if body.sentences:
        return record | {"sentences": [], "gaps": [text]}
    only: dict[str, object] = {"text": text, "score": 0.0, "log_probability": 0.0}
    return record | ({"candidates": [only]} if body.n_best is not None else {})


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
