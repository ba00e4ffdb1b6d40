"""Texts that are translated line by line: where each line stands, and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from deepwire.decoding.translation_io import Translation
from deepwire.serving.request import RequestBody, TextLines
from deepwire.serving.sentence_answers import candidates


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


def text_record(
    text: TextLines, index: int, translated: Mapping[LinePosition, Translation], scores: bool
) -> dict[str, object]:
    """A translation as JSON, of a text of several lines with the line breaks of the text.

    With scores, one line has its candidates, and several have a record each under `lines`: the translation of
    a line does not depend on the others.
    """
    lines = [
        _line_record(translated.get(LinePosition(index, number)), scores) for number in range(len(text.lines))
    ]
    if len(lines) == 1:
        return lines[0]
    whole: dict[str, object] = {"text": text.joined([str(line["text"]) for line in lines])}
    return {**whole, "lines": lines} if scores else whole


def _line_record(translation: Translation | None, scores: bool) -> dict[str, object]:
    """The translation of a line; of an empty one there is none."""
    if translation is None:
        empty: dict[str, object] = {"text": "", "score": 0.0, "log_probability": 0.0}
        return {"text": "", "candidates": [empty]} if scores else {"text": ""}
    record: dict[str, object] = {"text": translation.text}
    return record | ({"candidates": candidates(translation)} if scores else {})


def as_it_is(text: str, body: RequestBody) -> dict[str, object]:
    """The answer to a text that is in the target language already, or in none."""
    record: dict[str, object] = {"text": text}
    if body.sentences:
        return record | {"sentences": [], "gaps": [text]}
    only: dict[str, object] = {"text": text, "score": 0.0, "log_probability": 0.0}
    return record | ({"candidates": [only]} if body.n_best is not None else {})
