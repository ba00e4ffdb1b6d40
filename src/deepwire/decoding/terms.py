"""Constraints of translations: the placeholders of their sources, and the translations of terms.

Terms are read from a TSV file and found in texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple, Self

from deepwire.data.text.files import display
from deepwire.data.text.language_guess import UNSPACED
from deepwire.data.text.pairs import is_blank
from deepwire.data.text.placeholders import Core, core, count_placeholders, spaced_alike
from deepwire.data.vocabulary import Vocabulary
from deepwire.decoding.phrases import Phrase, phrase_of
from deepwire.decoding.translation_io import read_text
from deepwire.errors import DataError, LogFn

_WORD_START = re.compile(rf"(?<![^\W{UNSPACED}])\w")
_GOES_ON = re.compile(rf"[^\W{UNSPACED}]")
_KEY = 2
_FORM = "expected SOURCE<tab>TARGET, several targets with | between them"


class Term(NamedTuple):
    """A source term and the target terms of which a translation must have one.

    Attributes:
        source: Words; `*` at the end of a word stands for any ending.
        targets: What it may become; `*` at the end stands for any ending.
    """

    source: str
    targets: tuple[str, ...]

    def texts(self) -> dict[str, bool]:
        """Texts, each with whether its last word may go on; a small first letter may be a capital."""
        spellings: dict[str, bool] = {}
        for target in self.targets:
            text, goes_on = target.removesuffix("*"), target.endswith("*")
            capital = text[0].upper() + text[1:] if text[:1].islower() else text
            for spelling in (text, capital):
                spellings[spelling] = goes_on or spellings.get(spelling, False)
        return spellings

    def count(self, translation: str) -> int:
        """How often a translation has one of the targets, in whatever case its first letter is."""
        return len(_written(self).findall(translation))


@lru_cache(maxsize=4096)
def _written(term: Term) -> re.Pattern[str]:
    """One of the texts of a term as whole words; ideographs are words of their own."""
    texts = term.texts()
    choices = [
        re.escape(text) + ("" if texts[text] else rf"(?![^\W{UNSPACED}])")
        for text in sorted(texts, key=len, reverse=True)
    ]
    return re.compile(rf"(?<![^\W{UNSPACED}])(?:{'|'.join(choices)})")


@dataclass(frozen=True)
class Terminology:
    """Terms, found longest first."""

    terms: tuple[Term, ...]

    @classmethod
    def read(cls, path: Path, warn: LogFn) -> Self:
        """Read `SOURCE<tab>TARGET` lines; empty ones and those that begin with `#` are skipped.

        `warn` receives what `read_text` says.

        Raises:
            DataError: A line has another form or a term that no text has, two lines of one term differ, or
                there is no term.
        """
        terms: dict[str, Term] = {}
        places: dict[str, int] = {}
        for number, line in enumerate(read_text(path, warn), 1):
            if is_blank(line) or line.startswith("#"):
                continue
            where = f"{display(path)}:{number}"
            source, *others = [" ".join(column.split()) for column in line.split("\t")]
            targets = tuple(target.strip() for target in others[0].split("|")) if others else ()
            complete = len(others) == 1 and all(target.strip("* ") for target in targets)
            if not complete or not source:
                raise DataError(f"{where}: no term and translation with one tab between them", _FORM)
            if not source[0].isalnum():
                raise DataError(
                    f"{where}: {source!r} does not begin with a letter or digit, so it is found in no text",
                    "leave out what stands in front of its first letter",
                )
            if any("*" in word[:-1] for word in source.split(" ")):
                raise DataError(
                    f"{where}: {source!r} has a * that is not at the end of a word",
                    "write the word out, or only its beginning with * behind it",
                )
            key = source.casefold()
            if key in terms and terms[key].targets != targets:
                raise DataError(
                    f"{where}: {source!r} stands in line {places[key]} with another translation",
                    "write both in one line: SOURCE<tab>ONE|OTHER",
                )
            terms.setdefault(key, Term(source, targets))
            places.setdefault(key, number)
        if not terms:
            raise DataError(f"{display(path)}: has no terms", _FORM)
        return cls(tuple(terms.values()))

    def find(self, text: str) -> Iterator[Term]:
        """The terms of a text in their order, as often as they occur; none overlap."""
        at = 0
        for start in _WORD_START.finditer(text):
            if start.start() < at:
                continue
            begins = text[start.start() : start.start() + _KEY]
            near = [*self._by_start.get(begins.casefold(), ()), *self._by_start.get(begins[0].casefold(), ())]
            for term, pattern in near:
                match = pattern.match(text, start.start())
                if match and not _GOES_ON.match(text, match.end()):
                    at = match.end()
                    yield term
                    break

    @cached_property
    def _by_start(self) -> dict[str, list[tuple[Term, re.Pattern[str]]]]:
        """The terms by their first letters, longest first; one of one letter under all that it can begin."""
        by_start: dict[str, list[tuple[Term, re.Pattern[str]]]] = {}
        for term in sorted(self.terms, key=lambda term: len(term.source), reverse=True):
            words = r"\s+".join(
                re.escape(word.removesuffix("*")) + (r"\w*" if word.endswith("*") else "")
                for word in term.source.split(" ")
            )
            pattern = re.compile(words, re.IGNORECASE)
            key = re.split(r"[*\s]", term.source)[0][:_KEY].casefold()
            by_start.setdefault(key, []).append((term, pattern))
        return by_start


@dataclass(frozen=True)
class LineConstraints:
    """Placeholders and terms that the translation of one line must have.

    Attributes:
        source: The line.
        text: What the model reads: the line, or without some of its placeholders.
        kept: Placeholders that the translation must have, and how often each.
        terms: The terms of the line, as often as they occur.
    """

    source: str
    text: str
    kept: Mapping[str, int] = field(default_factory=dict)
    terms: tuple[Term, ...] = ()
    ends: tuple[str, str] = ("", "")
    """Text before and behind the translation."""

    @classmethod
    def of(cls, line: str, prefix: str, placeholders: bool, terms: Terminology | None) -> Self:
        """The constraints of a line."""
        made = cls(line, line)
        if placeholders:
            # In front of a prefix nothing stands.
            parts = Core("", line, "", count_placeholders(line)) if prefix else core(line)
            made = cls(line, parts.text, parts.kept, ends=(parts.before, parts.behind))
        return made if terms is None else replace(made, terms=tuple(terms.find(made.text)))

    def met_by(self, translation: str) -> bool:
        """Whether a translation has all that it must have."""
        counts = count_placeholders(translation)
        if any(counts[value] < count for value, count in self.kept.items()):
            return False
        return all(term.count(translation) >= count for term, count in Counter(self.terms).items())

    def phrases(self, target: Vocabulary, prefix: str = "", have: str = "") -> list[Phrase]:
        """Phrases that the search must bring in; what the vocabulary cannot write is left out.

        Args:
            target: The vocabulary.
            prefix: What the translation begins with, in any case.
            have: A translation whose terms need not be required.
        """
        wanted: list[Phrase | None] = []
        there = count_placeholders(prefix)
        said = have or prefix
        for value, count in self.kept.items():
            wanted += [phrase_of(target, {value: False})] * (count - there[value])
        for term, count in Counter(self.terms).items():
            phrase = phrase_of(target, term.texts())
            wanted += [phrase] * (count - term.count(said))
        return [phrase for phrase in wanted if phrase is not None]

    def finished(self, translation: str) -> str:
        """The translation with placeholders that it lacks at its end."""
        lacking = (Counter(self.kept) - count_placeholders(translation)).elements()
        text = spaced_alike(self.source, translation, [*self.kept])
        return self.ends[0] + " ".join([*([text] if text else []), *lacking]) + self.ends[1]
