"""Lines in capitals and in title case: read as ordinary sentences, and their translations written alike.

A model that was trained on ordinary text has hardly seen `PRESS THE BUTTON`. Whether a word is better written
small or with a capital is told by the vocabulary, which has the form that is frequent in fewer pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from deepwire.data.text.language_guess import language_code
from deepwire.data.text.placeholders import find_placeholders

Cost = tuple[int, int]
"""Unknown pieces, and pieces: smaller is better."""

_WORD = re.compile(r"[^\W\d_]+(?:['’\u00ad-][^\W\d_]+)*")
_VOWEL = re.compile(r"[aeiouyäöüáéíóúàèìòùâêîôûåæøœěůőűąęėįųиеёоуыэюяіїєαεηιουω]", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?…][\"'»”’)\]]*\s+[\"'«„“‘(\[]*\Z")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|(?<!\S)\S+@\S+", re.IGNORECASE)
_LONG = 4
"""Shorter words are often small within titles, and capitals on their own are often abbreviations."""
_SMALL_IN_TITLES = "a an and as at but by for from in into nor of off on or over per the to with"
_MOST_COSTS = 50_000
_DOTTED = {"tr", "az"}
"""Languages whose capital of i has a dot."""


class Case(Enum):
    """How a line is written."""

    UPPER = "upper"
    TITLE = "title"


@dataclass(frozen=True)
class OrdinaryLine:
    """A line as a model reads it.

    Attributes:
        text: In the case of an ordinary sentence.
        case: How the line was written.
        kept: Its words that stay as they are in the translation, too: abbreviations.
    """

    text: str
    case: Case
    kept: frozenset[str] = frozenset()

    def restored(self, translation: str, language: str, kept: Iterable[str] = ()) -> str:
        """A translation in the case of the line; placeholders stay as they are.

        Titles are a matter of English: translations into other languages stay as the model writes them.

        Args:
            translation: Of `text`.
            language: That of the translation; empty = not known.
            kept: What stays as it is, besides abbreviations.
        """
        fixed = _places(translation, [*self.kept, *kept])
        if self.case is Case.UPPER:
            return _changed(translation, fixed, lambda part: _upper(part, language))
        if language_code(language) != "en":
            return translation
        words = list(_WORD.finditer(translation))

        def titled(part: str, start: int) -> str:
            def word(match: re.Match[str]) -> str:
                at = start + match.start()
                inner = words and words[0].start() < at < words[-1].start()
                return match[0] if inner and match[0] in _SMALL_IN_TITLES.split() else _capital(match[0])

            return _WORD.sub(word, part)

        return _changed_at(translation, fixed, titled)


@dataclass
class OrdinaryCase:
    """Finds lines in capitals and in title case.

    Args:
        costs: Of each of some words: how a vocabulary writes them.
    """

    costs: Callable[[Sequence[str]], Sequence[Cost]]
    _known: dict[str, Cost] = field(default_factory=dict)

    def of(self, line: str) -> OrdinaryLine | None:
        """The line as an ordinary sentence; None where it is one."""
        places = _places(line, ())
        words = [word for word in _WORD.finditer(line) if not _within(word, places)]
        if not words or not any(word[0] != word[0].lower() for word in words):
            return None
        if all(word[0] == word[0].upper() for word in words):
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
        return OrdinaryLine(_with_words(line, words, chosen), Case.UPPER, kept)

    def _of_title(self, line: str, words: Sequence[re.Match[str]]) -> OrdinaryLine | None:
        if any(len(word[0]) >= _LONG and not word[0][0].isupper() for word in words):
            return None
        inner = [word[0] for word in words[1:] if word[0].istitle()]
        self._learn(form for word in inner for form in (word, word.lower()))
        smaller = [word for word in inner if self._known[word.lower()] < self._known[word]]
        if not smaller or 2 * len(smaller) < len([word for word in inner if len(word) >= _LONG]):
            return None  # names, and nouns of a language that writes them so
        small = {
            *smaller,
            *(word for word in inner if self._known[word.lower()] <= min(self._known[word], (0, 1))),
        }
        chosen = [
            word[0].lower() if number and word[0] in small else word[0] for number, word in enumerate(words)
        ]
        return OrdinaryLine(_with_words(line, words, chosen), Case.TITLE)

    def _learn(self, words: Iterable[str]) -> None:
        needed = list(dict.fromkeys(words))
        if len(self._known) > _MOST_COSTS:
            self._known.clear()
        new = [word for word in needed if word not in self._known]
        self._known.update(zip(new, self.costs(new), strict=True) if new else ())


def upper_case(text: str, language: str) -> str:
    """A text in capitals, but for its placeholders and addresses."""
    return outside_placeholders(text, lambda part: _upper(part, language))


def title_case(text: str) -> str:
    """A text in Title Case, but for placeholders, addresses, and what English titles write small."""
    small = _SMALL_IN_TITLES.split()
    return outside_placeholders(
        text, lambda part: _WORD.sub(lambda word: word[0] if word[0] in small else _capital(word[0]), part)
    )


def outside_placeholders(text: str, change: Callable[[str], str]) -> str:
    """A text with all parts changed but placeholders and addresses."""
    return _changed(text, _places(text, ()), change)


def _upper(text: str, language: str) -> str:
    return text.replace("i", "İ").upper() if language_code(language) in _DOTTED else text.upper()


def _forms(word: str) -> tuple[str, ...]:
    small = word.lower()
    return tuple(dict.fromkeys((small, _capital(small), word)))


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def _is_abbreviation(line: str, word: re.Match[str]) -> bool:
    """Whether a word in capitals is one in other lines, too: U.S., MP3, PDF."""
    before, behind = line[word.start() - 1 : word.start()], line[word.end() : word.end() + 2]
    if before.isdigit() or behind[:1].isdigit():
        return True
    if len(word[0]) == 1:
        return behind[:1] == "." or before == "."
    return word[0].isascii() and not _VOWEL.search(word[0])


def _with_words(line: str, words: Sequence[re.Match[str]], chosen: Sequence[str]) -> str:
    """The line with other words; a sentence begins with a capital."""
    parts, at = [], 0
    for number, (word, new) in enumerate(zip(words, chosen, strict=True)):
        between = line[at : word.start()]
        begins = number == 0 or _SENTENCE_END.search(between)
        parts += [between, _capital(new) if begins else new]
        at = word.end()
    return "".join([*parts, line[at:]])


Places = list[tuple[int, int]]


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


def _changed(text: str, fixed: Places, change: Callable[[str], str]) -> str:
    return _changed_at(text, fixed, lambda part, _: change(part))


def _changed_at(text: str, fixed: Places, change: Callable[[str, int], str]) -> str:
    """A text with what is not fixed changed; a change is told where its part begins."""
    parts, at = [], 0
    for begin, end in fixed:
        if begin >= at:
            parts += [change(text[at:begin], at), text[begin:end]]
        else:  # overlaps the one before
            parts.append(text[at:end])
        at = max(at, end)
    return "".join([*parts, change(text[at:], at)])
