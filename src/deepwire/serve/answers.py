"""The lines or sentences of a request that are translated, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepwire.data.text.sentences import SentenceSplitter, TextSegments
from deepwire.decoding.text_alignment import composed
from deepwire.decoding.translation_io import Candidate, Translation
from deepwire.serve.documents.translation_plan import DistinctTexts
from deepwire.serve.request import RequestBody, TextLines

Record = dict[str, object]
_EMPTY = (Candidate("", (), 0.0, 0.0),)


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


def _candidate_record(candidate: Candidate, *, scores: bool, alignment: bool) -> Record:
    record: Record = {"text": candidate.text}
    if scores:
        record |= {"score": candidate.score, "log_probability": candidate.log_probability}
    if alignment:
        links = () if candidate.alignment is None else candidate.alignment.links
        record["alignment"] = [list(link) for link in links]
    return record


def _record(candidates: Sequence[Candidate], *, scores: bool, alignment: bool) -> Record:
    """The best of some candidates; with scores, all of them too."""
    best = _candidate_record(candidates[0], scores=False, alignment=alignment)
    if scores:
        best["candidates"] = [_candidate_record(one, scores=True, alignment=alignment) for one in candidates]
    return best


def text_record(
    text: TextLines, translations: Sequence[Translation | None], *, scores: bool, alignment: bool
) -> Record:
    """A translation as JSON, of a text of several lines with the line breaks of the text.

    With scores, one line has its candidates, and several have a record each under `lines`: the translation of
    a line does not depend on the others. An alignment counts the words of the whole text.
    """
    candidates = [_EMPTY if one is None else one.candidates for one in translations]
    lines = [_record(one, scores=scores, alignment=alignment) for one in candidates]
    if len(lines) == 1:
        return lines[0]
    best = [one[0] for one in candidates]
    whole: Record = {"text": text.joined([candidate.text for candidate in best])}
    if alignment:
        whole["alignment"] = _whole_alignment(text.lines, best)
    return {**whole, "lines": lines} if scores else whole


def _whole_alignment(lines: Sequence[str], best: Sequence[Candidate]) -> list[list[int]]:
    """Links between the words of all lines."""
    links, counts = [], [0, 0]
    for line, candidate in zip(lines, best, strict=True):
        for source, target in () if candidate.alignment is None else candidate.alignment.links:
            links.append([source + counts[0], target + counts[1]])
        counts = [counts[0] + len(line.split()), counts[1] + len(candidate.text.split())]
    return links


def as_it_is(text: str, body: RequestBody) -> Record:
    """The answer to a text that is in the target language already, or in none."""
    record: Record = {"text": text}
    if body.alignment:
        record["alignment"] = [[place, place] for place in range(len(text.split()))]
    if body.sentences:
        return record | {"sentences": [], "gaps": [text]}
    only: Record = {"text": text, "score": 0.0, "log_probability": 0.0}
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
        self, translations: Sequence[Translation], language: str, *, scores: bool, alignment: bool
    ) -> list[Record]:
        """The answer to each text.

        Args:
            translations: Those of `sentences`.
            language: That of the translations; empty = not known.
            scores: Whether candidates are told.
            alignment: Whether it is told which words of a sentence and its translation belong together.
        """
        answers: list[Record] = []
        for segments, places in zip(self.segments, self.places, strict=True):
            records: list[Record] = []
            texts: list[str] = []
            for sentence, place in zip(segments.texts, places, strict=True):
                said = {"text": sentence, "untranslated": True}
                if place is not None:
                    said = _record(translations[place].candidates, scores=scores, alignment=alignment)
                records.append({"source": sentence, **said})
                texts.append(str(said["text"]))
            gaps = segments.gaps_for(language)
            answers.append({"text": segments.joined(texts, language), "sentences": records, "gaps": gaps})
        return answers
