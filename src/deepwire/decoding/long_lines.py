"""Lines that are too long for a model: translated piece by piece, and never cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from deepwire.data.text.pairs import plain, without_surrogates
from deepwire.data.text.sentences import (
    SentenceSplitter,
    TextSegments,
    has_sentence_rules,
)
from deepwire.data.vocabulary import Vocabulary
from deepwire.decoding.text_alignment import TextAlignment, joined
from deepwire.decoding.translation_io import Candidate, Request, Translate, Translation
from deepwire.errors import Tell

_SUBWORDS_PER_CHARACTER = 4
"""At most: as many as a character has bytes."""
_SHOWN = 40


@dataclass(frozen=True)
class LongLine:
    """A line in pieces.

    Attributes:
        segments: The pieces, and what stands between them.
        places: The places of the requests for its pieces; None for one that stays as it is.
    """

    segments: TextSegments
    places: tuple[int | None, ...]


@dataclass(frozen=True)
class LongLines:
    """Cuts lines that have too many subwords: into sentences, and these at punctuation or spaces.

    Without the package that tells sentences apart only the latter.

    Args:
        vocabulary: Of the source.
        longest: So many subwords a model reads.
        languages: Source and target language, where they are known; else empty.
        warn: Hears what cannot be cut.
    """

    vocabulary: Vocabulary
    longest: int
    languages: tuple[str, str]
    warn: Tell

    def translated(
        self, lines: Sequence[int], requests: Sequence[Request], translate: Translate
    ) -> list[Translation]:
        """Translations of requests; `translate` gives those of pieces that are not too long."""
        numbers, pieces, cuts = self.expanded(lines, requests)
        translations = translate(numbers, pieces)
        return [
            translations[cut] if isinstance(cut, int) else self.joined(line, request, cut, translations)
            for line, request, cut in zip(lines, requests, cuts, strict=True)
        ]

    def expanded(
        self, lines: Sequence[int], requests: Sequence[Request]
    ) -> tuple[list[int], list[Request], list[LongLine | int]]:
        """Requests for pieces in the place of lines that are too long.

        Returns:
            The line numbers, the requests, and of each line how it was cut, or the place of its request.
        """
        numbers, piece_requests, cuts = list[int](), list[Request](), list[LongLine | int]()
        for line, request in zip(lines, requests, strict=True):
            segments = self._cut(plain(request.text))
            if segments is None:
                cuts.append(len(piece_requests))
                numbers.append(line)
                piece_requests.append(request)
                continue
            places: list[int | None] = []
            prefix = request.prefix
            for index, text in enumerate(segments.texts):
                if index in segments.too_long:
                    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
                    self.warn(f"line {line}: a word too long for the model stays as it is: {shown}")
                    places.append(None)
                    continue
                places.append(len(piece_requests))
                numbers.append(line)
                piece_requests.append(replace(request, text=text, prefix=prefix, piece=index))
                prefix = ""
            cuts.append(LongLine(segments, tuple(places)))
        return numbers, piece_requests, cuts

    def joined(
        self, line: int, request: Request, cut: LongLine, translations: Sequence[Translation]
    ) -> Translation:
        """Of a line, from those of its pieces: the best of each, then the second of each, and so on."""
        pieces = [None if place is None else translations[place].candidates for place in cut.places]
        count = min((len(ranking) for ranking in pieces if ranking is not None), default=1)
        candidates = []
        for rank in range(count):
            ranked = [None if piece is None else piece[rank] for piece in pieces]
            there = [candidate for candidate in ranked if candidate is not None]
            texts = [
                kept if candidate is None else candidate.text
                for candidate, kept in zip(ranked, cut.segments.texts, strict=True)
            ]
            parts = cut.segments.parts(texts, request.to or self.languages[1])
            candidates.append(
                Candidate(
                    "".join(parts),
                    tuple(token for candidate in there for token in candidate.tokens),
                    sum(candidate.log_probability for candidate in there),
                    sum(candidate.score for candidate in there),
                    _joined_alignment(cut.segments, ranked, parts),
                )
            )
        return Translation(line, request, tuple(candidates))

    def _cut(self, text: str) -> TextSegments | None:
        """The pieces of a text that is too long; None for others."""
        # One more subword for the space in front.
        if _SUBWORDS_PER_CHARACTER * len(text) + 1 <= self.longest or text.isspace():
            return None
        if self._splitter.fits(text):
            return None
        return self._splitter.split(without_surrogates(text))

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.vocabulary.encode_lines(texts)]

    @cached_property
    def _splitter(self) -> SentenceSplitter:
        rules = has_sentence_rules()
        return SentenceSplitter(self.languages[0], self._lengths, self.longest, sentences=rules)


def _joined_alignment(
    segments: TextSegments, pieces: Sequence[Candidate | None], target: Sequence[str]
) -> TextAlignment | None:
    """Of the whole line; None where its pieces are not aligned. `target` is gap, piece, gap, ..., gap."""
    aligned = [piece.alignment for piece in pieces if piece is not None]
    if not aligned or aligned[0] is None:
        return None
    source = [segments.gaps[0]]
    for text, gap in zip(segments.texts, segments.gaps[1:], strict=True):
        source += [text, gap]
    places = [list(accumulate(map(len, parts)))[::2] for parts in (source, target)]
    parts = []
    for piece, kept, *at in zip(pieces, segments.texts, *(side[:-1] for side in places), strict=True):
        alignment = None if piece is None else piece.alignment
        parts.append((TextAlignment.copied(kept, aligned[0].units) if alignment is None else alignment, *at))
    return joined("".join(source), "".join(target), parts)
