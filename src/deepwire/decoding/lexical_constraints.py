"""Lexical constraints of translations: the placeholders of their sources, and the translations of terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deepwire.data.text.placeholders import (
    SYMBOLS,
    Core,
    core,
    count_placeholders,
    protect,
    restore,
    spaced_alike,
    symbols_in,
)
from deepwire.data.vocabulary import Vocabularies, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.required_phrases import Phrase, phrase_of
from deepwire.decoding.terminology import Term, Terminology
from deepwire.errors import UsageError


@dataclass(frozen=True)
class LineConstraints:
    """What the translation of one line must have.

    Attributes:
        source: The line.
        text: What the model reads: the line, or with symbols for its placeholders.
        values: What the symbols stand for.
        kept: Placeholders without a symbol, and how often the translation must have each.
        terms: The terms of the line, as often as they occur.
    """

    source: str
    text: str
    values: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    terms: tuple[Term, ...] = ()
    ends: tuple[str, str] = ("", "")
    """What stands before and behind the translation."""
    symbols: bool = False
    """Whether the model writes symbols."""

    def __bool__(self) -> bool:
        return bool(self.values or self.kept or self.terms)

    def met_by(self, translation: str) -> bool:
        """Whether a translation, with its symbols, has all that it must have."""
        if self.symbols and symbols_in(translation) != Counter(dict.fromkeys(self.values, 1)):
            return False
        counts = count_placeholders(translation)
        if any(counts[value] < count for value, count in self.kept.items()):
            return False
        return all(term.count(translation) >= count for term, count in Counter(self.terms).items())

    def with_symbols(self, prefix: str) -> str:
        """A given beginning of the translation with symbols where it has what they stand for."""
        for symbol, value in self.values.items():
            prefix = prefix.replace(value, symbol, 1)
        return prefix

    def phrases(self, target: Vocabulary, prefix: str = "", have: str = "") -> list[Phrase]:
        """What the search must bring in; what the vocabulary cannot write is left out.

        Args:
            target: The vocabulary.
            prefix: What the translation begins with, in any case.
            have: A translation whose terms need not be required; symbols are, as nothing else writes them.
        """
        wanted: list[Phrase | None] = []
        there = symbols_in(prefix) + count_placeholders(prefix)
        said = have or prefix
        for value, count in [*dict.fromkeys(self.values, 1).items(), *self.kept.items()]:
            wanted += [phrase_of(target, {value: False})] * (count - there[value])
        for term, count in Counter(self.terms).items():
            phrase = phrase_of(target, term.texts())
            wanted += [phrase] * (count - term.count(said))
        return [phrase for phrase in wanted if phrase is not None]

    def finished(self, translation: str) -> str:
        """The translation without symbols; placeholders that it lacks stand at its end."""
        wanted = Counter(self.values.values()) + Counter(self.kept)
        text = restore(translation, self.values) if self.symbols else translation
        if self.symbols and wanted - count_placeholders(text):
            # One of them cannot be told from what stands next to it.
            text = restore(translation, {symbol: f" {value} " for symbol, value in self.values.items()})
            text = " ".join(text.split())
        lacking = (wanted - count_placeholders(text)).elements()
        text = spaced_alike(self.source, text, [*self.values.values(), *self.kept])
        return self._between(" ".join([*([text] if text else []), *lacking]))

    def _between(self, translation: str) -> str:
        return self.ends[0] + translation + self.ends[1]


def preferred_terms(
    config: DecodingConfig, target: Vocabulary, constraints: Sequence[LineConstraints] | None
) -> list[list[Phrase]] | None:
    """The terms of each line, if the search is to prefer terms."""
    if constraints is None or config.term_search != "prefer":
        return None
    return [replace(line, values={}, kept={}).phrases(target) for line in constraints]


@dataclass(frozen=True)
class ConstraintFinder:
    """Finds what translations must have.

    Args:
        vocabularies: Of the model; those with symbols for placeholders are always given these.
        placeholders: Whether a model without symbols must keep placeholders, too.
        terms: Terms and their translations; None = none.
    """

    vocabularies: Vocabularies
    placeholders: bool = False
    terms: Terminology | None = None

    @property
    def active(self) -> bool:
        """Whether anything can be required."""
        return self.vocabularies.has_symbols or self.placeholders or self.terms is not None

    def of_lines(self, lines: Sequence[str], prefixes: Sequence[str]) -> list[LineConstraints] | None:
        """What the translation of each line must have; None where nothing can be required of any.

        Args:
            lines: As many as there are prefixes.
            prefixes: What each translation begins with in any case; perhaps nothing.
        """
        if not self.active:
            return None
        return [self.of(line, prefix) for line, prefix in zip(lines, prefixes, strict=True)]

    def of(self, line: str, prefix: str = "") -> LineConstraints:
        """What the translation of a line must have, which may have to begin with a prefix."""
        if self.vocabularies.has_symbols:
            protected = protect(line)
            # Where the symbols of a kind are used up, the others are read as they are.
            kept = count_placeholders(protected.text)
            for symbol in SYMBOLS:
                kept.pop(symbol, None)
            terms = self._terms(protected.text)
            return LineConstraints(line, protected.text, protected.values, kept, terms, symbols=True)
        if self.placeholders:
            # In front of a prefix nothing stands.
            parts = Core("", line, "", count_placeholders(line)) if prefix else core(line)
            ends = parts.before, parts.behind
            return LineConstraints(line, parts.text, {}, parts.kept, self._terms(parts.text), ends)
        return LineConstraints(line, line, terms=self._terms(line))

    def _terms(self, text: str) -> tuple[Term, ...]:
        return () if self.terms is None else tuple(self.terms.find(text))


def constraint_finder(
    vocabularies: Vocabularies, config: DecodingConfig, terms: Terminology | None
) -> ConstraintFinder:
    """What finds the constraints of lines, with these settings.

    Raises:
        UsageError: The settings do not go with terms.
    """
    if terms is not None and config.sampling is not None:
        raise UsageError("terms are searched for, and sampling draws translations", "leave out one of them")
    return ConstraintFinder(vocabularies, config.placeholders, terms)
