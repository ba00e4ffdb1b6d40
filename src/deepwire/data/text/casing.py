"""Lines in capitals and in title case: read as ordinary sentences, and their translations written alike.

A model that was trained on ordinary text has hardly seen `PRESS THE BUTTON`. Whether a word is better written
small or with a capital is told by the vocabulary, which has the form that is frequent in fewer pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from deepwire.data.text.language_guess import language_code
from deepwire.data.text.placeholders import find_placeholders

Cost = tuple[int, int]
"""Unknown pieces, and pieces: smaller is better."""
Places = list[tuple[int, int]]

_MARKS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
"""Those that combine with letters that have capitals; for Python they are no part of a word."""
_LETTER = r"[^\W\d_]"
_WORD = re.compile(
    rf"(?<![\w{_MARKS}}}])(?<![\w}}]['’])(?!(?<=\d[-‑:]){_LETTER}{{1,3}}(?!\w)){_LETTER}"
    rf"(?:{_LETTER}|[{_MARKS}]|['’·\u00ad\u200c\u200d\u2010\u2011-](?={_LETTER}))*"
)
"""Without the endings of figures and variables: 20th, 1990's, {n}th, 5-й, 3:e."""
_ENDING = re.compile(rf"(?<=\d)(?:ST|ND|RD|TH)\b|(?<=\d0)['’]?S\b|(?<=\d[-‑:]){_LETTER}{{1,3}}\b")
_FIGURE = re.compile(r"\d\w*\s+\Z")
_VOWEL = re.compile(r"[aeiouyäöüáéíóúàèìòùâêîôûåæøœěůőűąęėįųиеёоуыэюяіїєαεηιουω]", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?…][\"'»”’)\]]*\s+[\"'«„“‘(\[]*\Z")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|(?<!\S)\S+@\S+", re.IGNORECASE)
_LONG = 4
"""Shorter words are often small within titles, and capitals on their own are often abbreviations."""
_SMALL_IN_TITLES = "a an and as at but by for from in into nor of off on or over per the to with"
_MAX_COSTS = 50_000
_DOTTED = {"tr", "az"}
"""Languages whose capital of i has a dot."""


@dataclass(frozen=True)
class OrdinaryLine:
    """A line in capitals or title case as a model reads it.

    Attributes:
        text: In the case of an ordinary sentence.
        kept: Its words that stay as they are in the translation, too: abbreviations.
        title: Whether it was in title case.
    """

    text: str
    kept: frozenset[str] = frozenset()
    title: bool = False

    def restored(self, translation: str, language: str, kept: Iterable[str] = ()) -> str:
        """A translation in the case of the line; placeholders stay as they are.

        Titles are a matter of English: translations into other languages stay as the model writes them.

        `language` is that of the translation, empty if not known; `kept` stays as it is, too.
        """
        if self.title:
            return (
                title_case(translation, kept, ends=True) if language_code(language) == "en" else translation
            )
        parts, at = [], 0
        for begin, end in _places(translation, [*self.kept, *kept]):
            # One that overlaps the one before has nothing in front of it.
            parts += [_upper(translation[at:begin], language), translation[max(at, begin) : end]]
            at = max(at, end)
        return "".join([*parts, _upper(translation[at:], language)])


@dataclass
class OrdinaryCase:
    """Finds lines in capitals and in title case; `costs` say how a vocabulary writes some words."""

    costs: Callable[[Sequence[str]], Sequence[Cost]]
    _known: dict[str, Cost] = field(default_factory=dict)

    def of(self, line: str) -> OrdinaryLine | None:
        """The line as an ordinary sentence; None where it is one."""
        places = _places(line, ())
        words = [word for word in _WORD.finditer(line) if not _within(word, places)]
        if not words or not any(word[0] != _lower(word[0]) for word in words):
            return None
        if all((large := word[0].replace("ß", "ẞ")) == large.upper() for word in words):
            return self._of_capitals(line, words)
        return self._of_title(line, words)

    def _of_capitals(self, line: str, words: Sequence[re.Match[str]]) -> OrdinaryLine | None:
        forms = [() if _is_abbreviation(line, word) else _forms(word[0]) for word in words]
        self._learn(form for spellings in forms for form in spellings)
        # A word that the vocabulary has best in capitals is an abbreviation that is known.
        chosen = [
            min(spellings, key=self._known.__getitem__) if spellings else word[0]
            for word, spellings in zip(words, forms, strict=True)
        ]
        changed = [new for word, new in zip(words, chosen, strict=True) if new != word[0]]
        if not any(len(word) >= _LONG for word in changed):
            return None
        kept = frozenset(
            word[0] for word, new in zip(words, chosen, strict=True) if len(new) > 1 and new == word[0]
        )
        text = _ENDING.sub(lambda ending: ending[0].lower(), _with_words(line, words, chosen))
        return OrdinaryLine(text, kept)

    def _of_title(self, line: str, words: Sequence[re.Match[str]]) -> OrdinaryLine | None:
        if any(len(word[0]) >= _LONG and word[0][0] == _lower(word[0][0]) for word in words):
            return None
        inner = [word[0] for word in words[1:] if word[0] == _capital(_lower(word[0])) != _lower(word[0])]
        self._learn(form for word in inner for form in (word, _lower(word)))
        smaller = [word for word in inner if self._known[_lower(word)] < self._known[word]]
        if not smaller or 2 * len(smaller) < len([word for word in inner if len(word) >= _LONG]):
            return None  # names, and nouns of a language that writes them so
        small = {
            *smaller,
            *(word for word in inner if self._known[_lower(word)] <= min(self._known[word], (0, 1))),
        }
        chosen = [
            _lower(word[0]) if number and word[0] in small else word[0] for number, word in enumerate(words)
        ]
        return OrdinaryLine(_with_words(line, words, chosen), title=True)

    def _learn(self, words: Iterable[str]) -> None:
        needed = list(dict.fromkeys(words))
        if len(self._known) > _MAX_COSTS:
            self._known.clear()
        new = [word for word in needed if word not in self._known]
        self._known.update(zip(new, self.costs(new), strict=True) if new else ())


def title_case(text: str, kept: Iterable[str] = (), *, ends: bool = False) -> str:
    """A text in Title Case, but for placeholders, addresses, `kept`, and what English titles write small.

    The first and last word get a capital in any case if `ends`.
    """
    places = _places(text, kept)
    begins = [word.start() for word in _WORD.finditer(text)]
    large = begins[:1] + begins[-1:] if ends else []

    def titled(word: re.Match[str]) -> str:
        small = word[0] in _SMALL_IN_TITLES.split() and word.start() not in large
        return word[0] if small or _within(word, places) else _capital(word[0])

    return _WORD.sub(titled, text)


def _upper(text: str, language: str) -> str:
    return re.sub("i\u0307?", "İ", text).upper() if language_code(language) in _DOTTED else text.upper()


def _lower(word: str) -> str:
    return word.replace("İ", "i").lower()  # Python adds a second dot


def _forms(word: str) -> tuple[str, ...]:
    # Small I has no dot in Turkish: the vocabulary has such a letter or not.
    small = dict.fromkeys((_lower(word), _lower(word.replace("I", "ı"))))
    return tuple(dict.fromkeys([form for low in small for form in (low, _capital(low))] + [word]))


def _capital(word: str) -> str:
    return word[:1].title() + word[1:]


def _is_abbreviation(line: str, word: re.Match[str]) -> bool:
    """Whether a word in capitals is one in other lines, too: U.S., MP3, PDF."""
    before, behind = line[word.start() - 1 : word.start()], line[word.end() : word.end() + 2]
    if behind[:1].isdigit():
        return True
    if len(word[0]) == 1:
        return behind[:1] == "." or before == "."
    return word[0].isascii() and not _VOWEL.search(word[0])


def _with_words(line: str, words: Sequence[re.Match[str]], chosen: Sequence[str]) -> str:
    """The line with other words; a sentence begins with a capital."""
    parts, at = [], 0
    for number, (word, new) in enumerate(zip(words, chosen, strict=True)):
        between = line[at : word.start()]
        begins = _SENTENCE_END.search(between) if number else not _FIGURE.search(between)
        parts += [between, _capital(new) if begins else new]
        at = word.end()
    return "".join([*parts, line[at:]])


def _places(text: str, kept: Iterable[str]) -> Places:
    """Where a text has placeholders, and words that stay."""
    places = [(placeholder.begin, placeholder.end) for placeholder in find_placeholders(text)]
    places += [match.span() for match in _ADDRESS.finditer(text)]
    words = sorted(filter(None, set(kept)), key=len, reverse=True)
    if words:
        pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)"
        places += [match.span() for match in re.finditer(pattern, text)]
    return sorted(places)


def _within(word: re.Match[str], places: Places) -> bool:
    return any(begin < word.end() and word.start() < end for begin, end in places)
