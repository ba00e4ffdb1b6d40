"""Steps before and behind the translation of lines: ordinary case, and pieces of lines that are too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, groupby

from deepwire.data.text.casing import Cost, OrdinaryCase
from deepwire.data.text.pairs import plain, without_surrogates
from deepwire.data.text.sentences import SentenceSplitter, TextSegments, has_sentence_rules
from deepwire.data.vocabulary import UNK, Vocabulary
from deepwire.decoding.sentence_search import CutLine, Item
from deepwire.decoding.terms import Terminology
from deepwire.decoding.text_alignment import TextAlignment, joined
from deepwire.decoding.translation_io import Candidate
from deepwire.errors import Tell

_SUBWORDS_PER_CHARACTER = 4
"""At most: as many as a character has bytes."""
_SHOWN = 40


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

    def lower(self, items: list[Item]) -> list[Item]:
        """Write lines in ordinary case."""
        for item in items:
            if not item.prefix and (ordinary := self._ordinary.of(item.text)) is not None:
                item.ordinary, item.text = ordinary, ordinary.text
        return items

    def restore(self, items: list[Item]) -> list[Item]:
        """Write translations as their lines were written."""
        for item in items:
            if item.ordinary is not None:
                language, restored = item.request.to or self._target, item.ordinary.restored
                item.candidates = tuple(
                    replace(candidate, text=restored(candidate.text, language, self._kept))
                    for candidate in item.candidates
                )
        return items

    def _costs(self, words: Sequence[str]) -> list[Cost]:
        return [(ids.count(UNK), len(ids)) for ids in self._vocabulary.encode_lines(words)]


class LongLines:
    """Cuts lines that have too many subwords: into sentences, and these at punctuation or spaces.

    Without the package that tells sentences apart only the latter.

    Args:
        vocabulary: Of the source.
        longest: So many subwords a model reads.
        languages: Source and target language, where they are known; else empty.
        warn: Hears what cannot be cut.
    """

    def __init__(self, vocabulary: Vocabulary, longest: int, languages: tuple[str, str], warn: Tell) -> None:
        self._vocabulary, self._longest, self._languages = vocabulary, longest, languages
        self._warn = warn

    def cut(self, items: list[Item]) -> list[Item]:
        """Pieces in the place of lines that are too long."""
        return [piece for item in items for piece in self._pieces(item)]

    def join(self, items: list[Item]) -> list[Item]:
        """Lines in the place of their pieces: the best of each, then the second of each, and so on."""
        lines: list[Item] = []
        for cut, pieces in groupby(items, lambda item: item.cut):
            several = list(pieces)
            lines += several if cut is None else [self._joined(cut, several)]
        return lines

    def _pieces(self, item: Item) -> list[Item]:
        text = plain(item.text)
        # One more subword for the space in front.
        if _SUBWORDS_PER_CHARACTER * len(text) + 1 <= self._longest or text.isspace():
            return [item]
        if self._splitter.fits(text):
            return [item]
        cut = CutLine(item, self._splitter.split(without_surrogates(text)))
        pieces, prefix = [], item.prefix
        for index, piece in enumerate(cut.segments.texts):
            kept = index in cut.segments.too_long
            if kept:
                shown = piece if len(piece) <= _SHOWN else piece[:_SHOWN] + "…"
                self._warn(f"line {item.line}: a word too long for the model stays as it is: {shown}")
            pieces.append(
                Item(item.line, item.request, piece, "" if kept else prefix, index, cut, copied=kept)
            )
            prefix = prefix if kept else ""
        return pieces

    def _joined(self, cut: CutLine, pieces: Sequence[Item]) -> Item:
        whole, segments = cut.whole, cut.segments
        rankings = [None if item.piece in segments.too_long else item.candidates for item in pieces]
        count = min((len(ranking) for ranking in rankings if ranking is not None), default=1)
        candidates = []
        for rank in range(count):
            ranked = [None if ranking is None else ranking[rank] for ranking in rankings]
            there = [candidate for candidate in ranked if candidate is not None]
            texts = [
                kept if candidate is None else candidate.text
                for candidate, kept in zip(ranked, segments.texts, strict=True)
            ]
            parts = segments.parts(texts, whole.request.to or self._languages[1])
            candidates.append(
                Candidate(
                    "".join(parts),
                    tuple(token for candidate in there for token in candidate.tokens),
                    sum(candidate.log_probability for candidate in there),
                    sum(candidate.score for candidate in there),
                    _joined_alignment(segments, ranked, parts),
                )
            )
        whole.candidates = tuple(candidates)
        return whole

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._vocabulary.encode_lines(texts)]

    @cached_property
    def _splitter(self) -> SentenceSplitter:
        rules = has_sentence_rules()
        return SentenceSplitter(self._languages[0], self._lengths, self._longest, sentences=rules)


def _joined_alignment(
    segments: TextSegments, pieces: Sequence[Candidate | None], target: Sequence[str]
) -> TextAlignment | None:
    """The alignment of the whole line; None where its pieces have none. `target` is gap, piece, ..., gap."""
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
