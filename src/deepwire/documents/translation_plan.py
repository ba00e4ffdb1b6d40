"""Units of a document on their way through a model: which texts to translate, and the runs put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deepwire.data.text.sentences import SentenceSplitter, fitting_gap, has_words, is_spaced
from deepwire.documents.document import Run, Unit
from deepwire.documents.run_distribution import distribute

_SHOWN = 40


@dataclass
class _Piece:
    """A sentence, or what stands between two.

    Attributes:
        first: The index of its first run.
        runs: Its parts of the runs.
        text: The place of the sentence among the texts to translate; None = it stays as it is.
        alone: The same for each of its parts, where it has several.
        inner: Whether it is a gap between two sentences, which may want a space or none.
    """

    first: int
    runs: list[Run]
    text: int | None = None
    alone: list[int | None] = field(default_factory=list)
    inner: bool = False


class TranslationPlan:
    """What has to be translated for some units, each different text once.

    Args:
        units: Of a document.
        splitter: Cuts them into sentences.
        language: That of the translation.

    Attributes:
        texts: What to translate; line by line what a model reads.
        untranslated: Beginnings of pieces that are too long for the model and cannot be cut: they stay.
    """

    def __init__(self, units: Sequence[Unit], splitter: SentenceSplitter, language: str = "") -> None:
        self.texts: list[str] = []
        self.untranslated: list[str] = []
        self._places: dict[str, int] = {}
        self._spaced = is_spaced(language)
        self._splitter = splitter
        self._units = [(len(unit), list(self._pieces(unit))) for unit in units]

    def finished(self, translations: Sequence[str]) -> list[list[str]]:
        """The runs of each unit, translated.

        Args:
            translations: One for each of `texts`.
        """
        return [self._finish(count, pieces, translations) for count, pieces in self._units]

    def _place(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]

    def _pieces(self, unit: Unit) -> Iterator[_Piece]:
        found = self._splitter.split("".join(run.text for run in unit))
        at = 0
        for index, gap in enumerate(found.gaps):
            piece = _cut(unit, at, at + len(gap))
            piece.inner = 0 < index < len(found.texts)
            yield piece
            at += len(gap)
            if index == len(found.texts):
                return
            text = found.texts[index]
            piece = _cut(unit, at, at + len(text))
            at += len(text)
            if index in found.too_long:
                self.untranslated.append(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
            elif any(not run.fixed and has_words(run.text) for run in piece.runs):
                self._translate(piece, text)
            yield piece

    def _translate(self, piece: _Piece, text: str) -> None:
        piece.text = self._place(text.replace("\0", " "))
        if len(piece.runs) < 2:
            return
        for run in piece.runs:
            alone = run.text.strip()
            wanted = not run.fixed and has_words(alone)
            piece.alone.append(self._place(alone) if wanted and self._fits(alone) else None)

    def _fits(self, text: str) -> bool:
        lengths = self._splitter.lengths
        return lengths is None or lengths([text])[0] <= self._splitter.most

    def _finish(self, count: int, pieces: Sequence[_Piece], translations: Sequence[str]) -> list[str]:
        runs = [""] * count
        for piece in pieces:
            if piece.text is None:
                texts = [run.text for run in piece.runs]
                if piece.inner and not any(run.fixed for run in piece.runs):
                    texts = [fitting_gap("".join(texts), self._spaced)] + [""] * (len(texts) - 1)
            elif len(piece.runs) == 1:
                texts = [translations[piece.text]]
            else:
                alone = ["" if place is None else translations[place] for place in piece.alone]
                texts = distribute(translations[piece.text], piece.runs, alone)
            for offset, text in enumerate(texts):
                runs[piece.first + offset] += text
        return runs


def _cut(unit: Unit, begin: int, end: int) -> _Piece:
    """The part of a unit between two places in its text; of an empty one the run that it is in."""
    first: int | None = None
    parts: list[Run] = []
    at = 0
    for index, run in enumerate(unit):
        low, high = max(begin, at), min(end, at + len(run.text))
        at += len(run.text)
        if low >= high and not (begin == end and begin <= at and not run.fixed):
            if first is not None and at > end:
                break
            if first is not None:  # a run without text inside the sentence
                parts.append(Run("", run.fixed))
            continue
        first = index if first is None else first
        if begin == end:
            parts.append(Run("", run.fixed))
            break
        parts.append(Run(run.text[low - at + len(run.text) : high - at + len(run.text)], run.fixed))
    while parts and not parts[-1].text and len(parts) > 1:
        parts.pop()
    return _Piece(first or 0, parts or [Run("")])
