"""Texts of many sentences: cut into what a model translates at a time, and put together again.

Sentence boundaries are those of sentencex: rules and abbreviations for each language, nothing to download.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import NamedTuple

from deepwire.data.text.language_guess import UNSPACED, language_code
from deepwire.data.text.pairs import is_blank
from deepwire.errors import UsageError

# The breaks that Unicode calls mandatory (UAX 14), CR LF as one.
LINE_BREAK = re.compile("(\r\n|[\n\v\f\r\x85\u2028\u2029])")

_UNSPACED = frozenset(["zh", "yue", "ja", "th", "lo", "km", "my"])
# Korean has spaces, but where a sentence has none for too long, it is cut between two syllables.
_LETTER_TO_CUT_AT = f"[{UNSPACED}\uac00-\ud7a3]"
# Where a sentence that is too long is cut, the best places first; a cut is at the end of a match.
_CUTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"[;:\u2013\u2014](?=\s)|[\uff1b\uff1a]",
        r",(?=\s)|[\uff0c\u3001\u060c]",
        r"\s+",
        f"{_LETTER_TO_CUT_AT}(?={_LETTER_TO_CUT_AT})",
    )
)
_MIDDLE = 0.25
"""A cut leaves each side at least this share of the text, if there is any such place."""
# sentencex pairs each quotation mark and bracket of a line with the others, and each end of a sentence too:
# its time grows with their square.
_QUOTATION = re.compile(
    '["\u00ab\u00bb\u2018-\u201f\u2039\u203a\u3008-\u3011\u3014-\u301b\uff3b\uff3d\uff5f-\uff63\\[\\]{}()]'
)
_MAX_QUOTATION = 64
_MAX_CHARACTERS = 2000
"""So many marks and characters it gets at once, and those of a sentence that began before them."""
CHARACTERS_PER_SUBWORD = 64
"""More than subwords have on average: a text with more than that for each allowed one is too long."""


class TextSegments(NamedTuple):
    """A text cut in pieces: `gaps[0] texts[0] gaps[1] .. texts[-1] gaps[-1]` is the whole text again.

    Attributes:
        texts: The parts to be translated, each on its own.
        gaps: The parts before, between and behind: spaces, line breaks, and text without letters or digits.
        too_long: Places in `texts` of pieces that are too long for the model and have no place for a cut.
    """

    texts: tuple[str, ...]
    gaps: tuple[str, ...]
    too_long: tuple[int, ...] = ()

    def joined(self, translations: Sequence[str], language: str = "") -> str:
        """The text with translations for its pieces; spaces between sentences depend on their language."""
        return "".join(self.parts(translations, language))

    def parts(self, translations: Sequence[str], language: str = "") -> list[str]:
        """The parts that `joined` puts together: a gap, a translation, a gap, ..., a gap."""
        gaps = self.gaps_for(language)
        pairs = zip(translations, gaps[1:], strict=True)
        return [gaps[0], *(part for pair in pairs for part in pair)]

    def gaps_for(self, language: str = "") -> list[str]:
        """The gaps before, between and behind the translations into a language."""
        spaced, last = is_spaced(language), len(self.gaps) - 1
        return [fitting_gap(gap, spaced) if 0 < place < last else gap for place, gap in enumerate(self.gaps)]


def is_spaced(language: str) -> bool:
    """Whether there are spaces between the sentences of a language; so it is where it is not known."""
    return language_code(language) not in _UNSPACED


def fitting_gap(gap: str, spaced: bool) -> str:
    """The gap between two sentences of a line, for a language with or without spaces."""
    if not gap.strip(" "):
        return (gap or " ") if spaced else ""
    return gap


def has_sentence_rules() -> bool:
    """Whether the package that tells sentences apart is installed."""
    return find_spec("sentencex") is not None


@dataclass(frozen=True)
class SentenceSplitter:
    """Cuts texts of a language at line breaks and sentence boundaries, and sentences that are too long.

    A sentence with more subwords than the model reads is cut at a semicolon, colon or dash, a comma, a space,
    or between letters of writing without spaces, near its middle. What has no such place stays as it is and
    is reported in `TextSegments.too_long`. A UsageError where sentencex is needed and not installed.

    Args:
        language: Label such as `de` or `pt_BR`; unknown ones have the rules that most languages share.
        lengths: Counts the subwords of each of several texts; None = no sentence is too long.
        most: So many subwords are allowed.
        sentences: Whether sentences are told apart; else only what is too long is cut.
    """

    language: str = ""
    lengths: Callable[[Sequence[str]], Sequence[int]] | None = None
    most: int = 0
    sentences: bool = True

    def __post_init__(self) -> None:
        if self.sentences and not has_sentence_rules():
            raise UsageError(
                "splitting texts into sentences needs the package sentencex",
                "pip install 'deepwire[documents]'",
            )

    def split(self, text: str) -> TextSegments:
        """Cut a text."""
        texts: list[str] = []
        gaps: list[str] = []
        gap: list[str] = []
        language = (language_code(self.language) or "en") if self.sentences else ""
        for part, is_text in _parts(text, language):
            if is_text:
                texts.append(part)
                gaps.append("".join(gap))
                gap.clear()
            else:
                gap.append(part)
        return self._cut_long(TextSegments(tuple(texts), (*gaps, "".join(gap))))

    def _cut_long(self, segments: TextSegments) -> TextSegments:
        if self.lengths is None or not segments.texts:
            return segments
        long = [self._is_long_text(text) for text in segments.texts]
        countable = [text for text, is_long in zip(segments.texts, long, strict=True) if not is_long]
        counts = iter(self.lengths(countable) if countable else ())
        long = [is_long or next(counts) > self.most for is_long in long]
        if not any(long):
            return segments
        texts: list[str] = []
        gaps = [segments.gaps[0]]
        too_long: list[int] = []
        for text, gap, is_long in zip(segments.texts, segments.gaps[1:], long, strict=True):
            for piece, after, fits in self._pieces(text) if is_long else [(text, "", True)]:
                if not fits:
                    too_long.append(len(texts))
                texts.append(piece)
                gaps.append(after)
            gaps[-1] += gap
        return TextSegments(tuple(texts), tuple(gaps), tuple(too_long))

    def _is_long_text(self, text: str) -> bool:
        return len(text) > CHARACTERS_PER_SUBWORD * self.most

    def fits(self, text: str) -> bool:
        """Whether a text has at most as many subwords as are allowed; a very long one is not counted."""
        assert self.lengths is not None
        return not self._is_long_text(text) and self.lengths([text])[0] <= self.most

    def _pieces(self, text: str) -> Iterator[tuple[str, str, bool]]:
        """Pieces of a sentence, the space behind each, and whether it fits."""
        stack = [(text, "")]
        while stack:
            piece, after = stack.pop()
            if self.fits(piece):
                yield piece, after, True
                continue
            cut = _best_cut(piece)
            if cut is None:
                yield piece, after, False
                continue
            left, right = piece[:cut].rstrip(), piece[cut:].lstrip()
            stack.append((right, after))
            stack.append((left, piece[len(left) : len(piece) - len(right)]))


def _best_cut(text: str) -> int | None:
    """The place for a cut: the best kind near the middle, else the one that is nearest to it."""
    middle, window = len(text) / 2, len(text) * _MIDDLE
    nearest: int | None = None
    for pattern in _CUTS:
        places = [match.end() for match in pattern.finditer(text) if 0 < match.end() < len(text)]
        if not places:
            continue
        best = min(places, key=lambda place: abs(place - middle))
        if abs(best - middle) <= window:
            return best
        if nearest is None or abs(best - middle) < abs(nearest - middle):
            nearest = best
    return nearest


def _parts(text: str, language: str) -> Iterator[tuple[str, bool]]:
    """The text piece by piece, each with whether it is to be translated."""
    for number, line in enumerate(LINE_BREAK.split(text)):
        if number % 2:
            yield line, False
            continue
        for sentence in _sentences(line, language):
            core = sentence.strip()
            if not any(map(str.isalnum, core)):
                yield sentence, False
                continue
            start = sentence.index(core)
            yield sentence[:start], False
            yield core, True
            yield sentence[start + len(core) :], False


def _sentences(line: str, language: str) -> list[str]:
    """The sentences of a line, with the spaces behind them; without a language the line."""
    if not language or is_blank(line):
        return [line]
    sentences = list(_sentences_in_windows(line, language))
    # Nothing of a text may be lost, whatever the package makes of it.
    return sentences if "".join(sentences) == line else [line]


def _sentences_in_windows(line: str, language: str) -> Iterator[str]:
    """The sentences that sentencex finds in a line, in time that grows with its length.

    A short line with few quotation marks goes to it as a whole. Of others it gets a window at a time, begun
    with the last sentence of the window before. Where a window has no end of a sentence, the next one
    begins anew.
    """
    import sentencex

    begun: list[str] = []
    last = ""
    for window in _windows(line):
        text = last + window
        first, *others = sentencex.segment(language, text) or [text]
        begun.append(first)
        last = ""
        if others:
            yield "".join(begun)
            begun.clear()
            *whole, last = others
            yield from whole
    if begun or last:
        yield "".join([*begun, last])


def _windows(line: str) -> Iterator[str]:
    """A line in pieces of so many characters, or that end with their last allowed quotation mark."""
    start = 0
    while start < len(line):
        end = start + _MAX_CHARACTERS
        if end < len(line):  # the rules read the word behind a point: `3. Mai`, and not `3. Ma`
            end = line.rfind(" ", start, end) + 1 or end
        marks = [*islice(_QUOTATION.finditer(line, start, end), _MAX_QUOTATION)]
        if len(marks) == _MAX_QUOTATION:
            end = marks[-1].end()
        yield line[start:end]
        start = end
