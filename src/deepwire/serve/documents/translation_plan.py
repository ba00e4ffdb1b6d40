"""Units of a document on their way through a model: which texts to translate, and the runs put together."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deepwire.data.text.placeholders import KINDS
from deepwire.data.text.sentences import SentenceSplitter, TextSegments, fitting_gap, is_spaced
from deepwire.decoding.translation_io import Candidate
from deepwire.serve.documents.document import Marks, Piece, Run, Unit, common, in_order
from deepwire.serve.documents.markup_projection import Matching, distribute, project

_ADDRESS = re.compile(KINDS["address"])
_SHOWN = 40


@dataclass
class _Part:
    """A sentence, or what stands between two.

    Attributes:
        first: The number of its first run.
        runs: Its parts of the runs.
        text: The place of the sentence among the texts to translate; None = it stays as it is.
        inner: Whether it is a gap between two sentences, which may want a space or none.
    """

    first: int
    runs: list[Run]
    text: int | None = None
    inner: bool = False

    @property
    def whole(self) -> str:
        return "".join(run.text for run in self.runs)

    def loosen_spaces(self) -> None:
        """Take spaces at an end of the unit out of their elements, which may move away from it."""
        if self.text is None:
            self.runs = [
                run if run.fixed or run.text.strip() else run._replace(marks=()) for run in self.runs
            ]

    def pieces(self, translated: Sequence[Piece]) -> list[Piece]:
        """These with the numbers that fixed runs have in the unit."""
        return [
            piece._replace(run=self.first + piece.run)
            if piece.run is not None and self.runs[piece.run].fixed
            else piece._replace(run=None)
            for piece in translated
        ]


class Sentences(NamedTuple):
    """A unit of one run, which may have as many sentences as a book: they are held in a few bytes each.

    Attributes:
        texts: The place of each among the texts to translate; one that stays, itself.
        gaps: As in `TextSegments`.
    """

    texts: list[int | str]
    gaps: tuple[str, ...]


class TranslationPlan:
    """The texts to translate for some units, each different one once.

    Args:
        units: Of a document.
        splitter: Cuts them into sentences.
        language: That of the translation.
        starts: The units that begin a document, for models that read documents in their order; None: they
            read sentences, and each different one is translated once.

    Attributes:
        texts: What to translate; line by line what a model reads.
        starts: The places of those that begin a document; None: each stands for itself.
        has_markup: Whether a unit has several runs, for which `translated_units` needs alignments.
        untranslated: Beginnings of pieces that are too long for the model and cannot be cut: they stay.
    """

    def __init__(
        self,
        units: Iterable[Unit],
        splitter: SentenceSplitter,
        language: str = "",
        starts: Collection[int] | None = None,
    ) -> None:
        self.texts: list[str] = []
        self.starts: set[int] | None = None if starts is None else set()
        self._places: dict[str, int] = {}
        self.untranslated: list[str] = []
        self.has_markup = False
        self._language, self._splitter = language, splitter
        self._units: list[tuple[Unit, list[_Part] | Sentences]] = []
        for place, unit in enumerate(units):
            if self.starts is not None and place in (starts or ()):
                self.starts.add(len(self.texts))
            self.has_markup |= len(unit) > 1
            is_plain = len(unit) == 1 and not (unit[0].fixed or unit[0].marks)
            self._units.append((unit, self._sentences(unit[0].text) if is_plain else list(self._parts(unit))))

    def translated_units(self, answers: Sequence[Candidate]) -> list[list[Piece]]:
        """The translated units, from a translation of each of `texts`."""
        whole = _Finished(is_spaced(self._language), answers)
        return [
            self._finished_sentences(unit, parts, answers)
            if isinstance(parts, Sentences)
            else whole.unit(unit, parts)
            for unit, parts in self._units
        ]

    @property
    def sentences(self) -> list[Sentences]:
        """The units of one run."""
        return [parts for _, parts in self._units if isinstance(parts, Sentences)]

    def _place(self, text: str) -> int:
        """Where the text is among `texts`, to which it is added if need be."""
        if text not in self._places or self.starts is not None:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]

    def _sentences(self, text: str) -> Sentences:
        segments = self._splitter.split(text)
        texts: list[int | str] = list(segments.texts)
        too_long = set(segments.too_long)
        for number, sentence in enumerate(segments.texts):
            if number in too_long:
                self._leave(sentence)
            elif _is_translated(sentence):
                texts[number] = self._place(sentence.replace("\0", " "))
        return Sentences(texts, segments.gaps)

    def _finished_sentences(
        self, unit: Unit, sentences: Sentences, answers: Sequence[Candidate]
    ) -> list[Piece]:
        places = [place for place in sentences.texts if isinstance(place, int)]
        if all(answers[place].text == self.texts[place] for place in places):
            return in_order(unit, [unit[0].text])
        said = [text if isinstance(text, str) else answers[text].text for text in sentences.texts]
        return in_order(unit, [TextSegments((), sentences.gaps).joined(said, self._language)])

    def _leave(self, text: str) -> None:
        self.untranslated.append(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")

    def _parts(self, unit: Unit) -> Iterator[_Part]:
        segments = self._splitter.split("".join(run.text for run in unit))
        spans = [*segments.gaps[:1]]
        for text, gap in zip(segments.texts, segments.gaps[1:], strict=True):
            spans += [text, gap]
        for number, (text, part) in enumerate(zip(spans, _cut(unit, list(map(len, spans))), strict=True)):
            if number % 2 == 0:  # gap, sentence, gap, ..., gap
                part.inner = 0 < number < len(spans) - 1
            elif number // 2 in segments.too_long:
                self._leave(text)
            elif any(not run.fixed and _is_translated(run.text) for run in part.runs):
                part.text = self._place(text.replace("\0", " "))
            yield part


@dataclass(frozen=True)
class _Finished:
    """Puts units together; `spaced`: whether there are spaces between sentences."""

    spaced: bool
    answers: Sequence[Candidate]

    def unit(self, unit: Unit, parts: Sequence[_Part]) -> list[Piece]:
        """The pieces of a unit; what is translated by itself stays as it is."""
        same = (part.text is None or self.answers[part.text].text == part.whole for part in parts)
        if all(same):
            return in_order(unit, [run.text for run in unit])
        if any(run.marks for run in unit):
            projected = self._projected(parts)
            if projected is not None and _is_whole(projected, unit):
                return projected
        texts: list[list[str]] = [[] for _ in unit]
        for part in parts:
            for offset, text in enumerate(self._texts(part)):
                texts[part.first + offset].append(text)
        return in_order(unit, ["".join(run_texts) for run_texts in texts])

    def _projected(self, parts: Sequence[_Part]) -> list[Piece] | None:
        """With elements where their words are; None where a sentence has no alignment and needs one."""
        pieces: list[Piece] = []
        for number, part in enumerate(parts):
            if number in (0, len(parts) - 1):
                part.loosen_spaces()
            if part.text is None or len(part.runs) == 1:
                pieces += part.pieces(in_order(part.runs, self._texts(part)))
                continue
            if (projected := project(self._matching(part))) is None:
                return None
            pieces += part.pieces(projected)
        return _once([piece for piece in pieces if piece.text or piece.marks or piece.run is not None])

    def _texts(self, part: _Part) -> list[str]:
        """A text for each run of a part, in their order."""
        if part.text is None:
            texts = [run.text for run in part.runs]
            if part.inner and not any(run.fixed for run in part.runs):
                return [fitting_gap("".join(texts), self.spaced)] + [""] * (len(texts) - 1)
            return texts
        if len(part.runs) == 1:
            return [self.answers[part.text].text]
        return distribute(self._matching(part))

    def _matching(self, part: _Part) -> Matching:
        assert part.text is not None
        answer = self.answers[part.text]
        return Matching.of(answer.text, part.runs, answer.alignment)


def _is_translated(text: str) -> bool:
    """Whether there are letters, but for those of addresses: figures and addresses alone stay."""
    return any(map(str.isalpha, _ADDRESS.sub("", text)))


def _once(pieces: Sequence[Piece]) -> list[Piece]:
    """Without a second part of a fixed run, which sentences have cut."""
    seen: set[int] = set()
    kept = []
    for piece in pieces:
        if piece.run is None or piece.run not in seen:
            kept.append(piece)
        seen |= set() if piece.run is None else {piece.run}
    return kept


def _is_whole(pieces: Sequence[Piece], unit: Unit) -> bool:
    """Whether each element stands together, and none and no fixed run is missing."""
    ended: set[int] = set()
    path: Marks = ()
    for piece in pieces:
        ended |= set(path) - set(piece.marks)
        if ended & set(piece.marks):
            return False
        path = piece.marks
    runs = {piece.run for piece in pieces}
    marks = ended | set(path)
    return all(set(run.marks) <= marks and (not run.fixed or place in runs) for place, run in enumerate(unit))


def _cut(unit: Unit, lengths: Sequence[int]) -> Iterator[_Part]:
    """The unit in parts of such lengths; a run without text is in the part that begins there, or the last."""
    number, used, at, end = 0, 0, 0, 0  # the run, how much of it is in earlier parts, and places in the text
    for index, length in enumerate(lengths):
        part, last = _Part(number, []), index == len(lengths) - 1
        end += length
        while number < len(unit):
            run = unit[number]
            rest = len(run.text) - used
            if at == end and (rest or not last):
                break
            taken = min(rest, end - at)
            part.runs.append(run._replace(text=run.text[used : used + taken]))
            at += taken
            if taken < rest:
                used += taken
                break
            number, used = number + 1, 0
        yield part if part.runs else _between(unit, number if used else number - 1, number)


def _between(unit: Unit, before: int, after: int) -> _Part:
    """A gap without any text, between the ends of runs or within one."""
    runs = [(place, unit[place]) for place in (before, after) if 0 <= place < len(unit)]
    marks = [run.marks for _, run in runs] if len(runs) == 2 else [()]
    first = next((place for place, run in runs if not run.fixed), max(before, 0))
    return _Part(first, [Run("", marks=marks[0][: common(marks[0], marks[-1])])])
