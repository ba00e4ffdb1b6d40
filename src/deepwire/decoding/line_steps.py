"""The way of a line to its translations, step by step, in the order in which `Translator` takes them.

A step takes items, and gives items: ordinary case, pieces of lines that are too long, subwords, the search,
texts; then what was done in front of the search is undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, groupby
from threading import Event

import torch
from torch import Tensor

from deepwire.data.languages import Languages
from deepwire.data.text.casing import Cost, OrdinaryCase, OrdinaryLine
from deepwire.data.text.pairs import is_blank, plain, without_surrogates
from deepwire.data.text.placeholders import has_letters
from deepwire.data.text.sentences import SentenceSplitter, TextSegments, has_sentence_rules
from deepwire.data.vocabulary import BOS, UNK, Vocabularies, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.document_context import ContextEncoder
from deepwire.decoding.model_inputs import (
    LanguageSelector,
    SourceTokenizer,
    TargetLanguage,
    batches_by_length,
    map_batches,
    pad_batch,
    target_language_ids,
)
from deepwire.decoding.models import DecodingModel
from deepwire.decoding.phrases import Phrase
from deepwire.decoding.search import Batch, Hypothesis, generate
from deepwire.decoding.shortlist import BatchShortlist, LanguageRows, Shortlist, batch_shortlist
from deepwire.decoding.terms import LineConstraints, Terminology
from deepwire.decoding.text_alignment import TextAlignment, joined
from deepwire.decoding.translation_io import Candidate, Request
from deepwire.errors import DataError, LogFn, UsageError

_SUBWORDS_PER_CHARACTER = 4
"""At most: as many as a character has bytes."""
_SHOWN = 40
_MAX_LINES = 1 << 40  # more than any text has


@dataclass(eq=False)
class Item:
    """A line, or a piece of a long one, on its way to its translations.

    Attributes:
        line: The number of the line, from 1.
        request: What was asked for.
        text: What is translated; also without what is not written in ordinary case.
        prefix: Text that the translation begins with.
        piece: Which piece of its line it is.
        cut: How its line was cut; None: it is whole.
        ordinary: How to write the translation as the line was written; None: as it is.
        copied: Whether it is its own translation.
        language: The target language; None with one direction.
        constraints: What the translation must have; None: nothing can be required.
        source: Subwords as the model reads them; empty = nothing to translate.
        front: How many of these are context, behind the begin symbol and the tag.
        prompt: Subwords of context that the decoder reads in front of the translation.
        prefix_ids: Subwords that the translation begins with.
        bonus_phrases: Phrases that it should rather have.
        hypotheses: What a search found, best first.
        candidates: What a user gets, best first.
    """

    line: int
    request: Request
    text: str
    prefix: str = ""
    piece: int = 0
    cut: CutLine | None = None
    ordinary: OrdinaryLine | None = None
    copied: bool = False
    language: TargetLanguage | None = None
    constraints: LineConstraints | None = None
    source: list[int] = field(default_factory=list)
    front: int = 0
    prompt: list[int] = field(default_factory=list)
    prefix_ids: list[int] = field(default_factory=list)
    bonus_phrases: list[Phrase] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    candidates: tuple[Candidate, ...] = ()

    @property
    def length(self) -> int:
        """Subwords of the source without context and end symbol."""
        return len(self.source) - 1 - self.front

    @property
    def read_first(self) -> list[int]:
        """Subwords that the decoder reads in front of the translation."""
        return [BOS if self.language is None else self.language.first_token, *self.prompt]


@dataclass(frozen=True, eq=False)
class CutLine:
    """A line in pieces."""

    whole: Item
    segments: TextSegments


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
    """

    def __init__(self, vocabulary: Vocabulary, longest: int, languages: tuple[str, str], warn: LogFn) -> None:
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
        parts.append((TextAlignment.copied(kept) if alignment is None else alignment, *at))
    return joined("".join(source), "".join(target), parts)


@dataclass(frozen=True)
class LineEncoder:
    """Encodes lines as the model reads them, and says what their translations must have."""

    vocabularies: Vocabularies
    config: DecodingConfig
    selector: LanguageSelector
    tokenizer: SourceTokenizer
    contexts: ContextEncoder
    terms: Terminology | None

    def encode(self, items: list[Item]) -> list[Item]:
        """Subwords of sources and given beginnings, languages and constraints."""
        texts = []
        for item in items:
            text = plain(item.text)
            if not item.copied:
                item.language = self._target_language(item)
                # Without letters but those of placeholders, a line is its own translation.
                wordless = not is_blank(item.text) and not has_letters(item.text)
                item.copied = self.config.guards and not item.prefix and wordless
            if self.constrains:
                text = self._constrain(item, text)
            item.prefix_ids = self.vocabularies.target.encode(item.prefix) if item.prefix else []
            texts.append("" if item.copied else text)
        tags = [None if item.language is None else item.language.source_tag for item in items]
        sources = self.tokenizer.encode_lines(texts, [item.line for item in items], tags)
        for item, source in zip(items, sources, strict=True):
            item.source = source
        if self.contexts.context.used:
            self._add_context(items)
        return items

    def _add_context(self, items: list[Item]) -> None:
        contexts = [item.request.context for item in items]
        heads = [
            int(self.tokenizer.bos) + (item.language is not None and item.language.source_tag is not None)
            for item in items
        ]
        lengths = [len(item.source) - head - 1 for item, head in zip(items, heads, strict=True)]
        prompts = self.contexts.targets(contexts, lengths)
        sources, fronts = self.contexts.with_contexts([item.source for item in items], heads, contexts)
        for item, source, front, prompt in zip(items, sources, fronts, prompts, strict=True):
            item.source, item.front, item.prompt = source, front, prompt

    def _constrain(self, item: Item, text: str) -> str:
        """Say what the translation must have; returns what the model reads."""
        constraints = LineConstraints.of(text, item.prefix, self.config.placeholders, self.terms)
        item.constraints = constraints
        if self.config.term_search == "prefer":
            terms = replace(constraints, kept={})
            item.bonus_phrases = terms.phrases(self.vocabularies.target)
        return constraints.text

    @property
    def constrains(self) -> bool:
        """Whether translations may have to have something."""
        return self.config.placeholders or self.terms is not None

    def _target_language(self, item: Item) -> TargetLanguage | None:
        line, request = item.line, item.request
        if not request.to and is_blank(item.text):
            return None  # there is nothing to translate, and so no language
        if self.selector.languages is None and request.fields:
            return None  # "to" of a JSON line is handed through: it may be a person
        try:
            return self.selector.select(request.to, request.from_)
        except UsageError as error:
            kind = DataError if request.where and request.to else UsageError
            raise kind(f"{request.where or f'line {line}'}: {error.message}", error.hint) from None


@dataclass(frozen=True)
class LineSearch:
    """Searches for translations of lines, in batches of similar length."""

    model: DecodingModel
    vocabularies: Vocabularies
    config: DecodingConfig
    device: torch.device
    languages: Languages | None
    shortlist: Shortlist | None

    def search(self, items: list[Item]) -> list[Item]:
        """Give items that have a source their hypotheses, best first."""
        full = [item for item in items if item.source]

        def search_batch(rows: Sequence[int], stop: Event) -> list[list[Hypothesis]]:
            chosen = [full[row] for row in rows]
            source, languages = self.sources(chosen)
            batch = Batch(
                source,
                [self.config.output_limit(item.length) for item in chosen],
                [item.line + item.piece * _MAX_LINES for item in chosen],
                prefixes=[item.prefix_ids for item in chosen],
                prompts=[item.read_first for item in chosen],
                languages=languages,
                pieces=self.vocabularies.target.size,
                bonus_phrases=[item.bonus_phrases for item in chosen],
                stop=stop,
            )
            if self.shortlist is None:
                return generate(self.model, batch, self.config)
            shortlist = self._batch_shortlist(self.shortlist, chosen, source.cpu())
            batch = replace(batch, shortlist=shortlist.tokens)
            return generate(self.model.select(*shortlist), batch, self.config)

        tokens = max(1, self.config.batch_tokens // self.config.width)
        batches = batches_by_length([len(item.source) for item in full], tokens)
        for item, hypotheses in zip(full, map_batches(search_batch, batches, self.device), strict=True):
            item.hypotheses = hypotheses
        return items

    def sources(self, items: Sequence[Item]) -> tuple[Tensor, Tensor | None]:
        """Source subwords `[N, S]` and target languages `[N]`."""
        targets = [item.language for item in items if item.language is not None]
        source = pad_batch([item.source for item in items], self.device)
        return source, target_language_ids(targets, self.device) if targets else None

    def _batch_shortlist(self, shortlist: Shortlist, items: Sequence[Item], source: Tensor) -> BatchShortlist:
        rows_of: dict[int, list[int]] = {}
        for row, item in enumerate(items):
            rows_of.setdefault(0 if item.language is None else item.language.language_id, []).append(row)
        names = ("",) if self.languages is None else self.languages.names
        needed = [
            [*item.prefix_ids, *(subword for phrase in item.bonus_phrases for subword in phrase.subwords)]
            for item in items
        ]
        parts = [
            LanguageRows(index, shortlist.table(names[index]), source[rows], [needed[row] for row in rows])
            for index, rows in rows_of.items()
        ]
        return batch_shortlist(parts, len(names)).to(self.device)


def build_candidates(items: list[Item], target: Vocabulary) -> list[Item]:
    """Texts with their placeholders; a line without any hypothesis has one with score 0."""
    for item in items:
        constraints, built = item.constraints, list[Candidate]()
        for each in item.hypotheses:
            # A line must stay one line, even if the vocabulary can spell a line break byte by byte.
            text = plain(target.decode(each.ids))
            text = text if constraints is None else constraints.finished(text)
            built.append(Candidate(text, tuple(target.pieces(each.ids)), each.log_probability, each.score))
        if not built:
            text = "" if constraints is None else constraints.finished("")
            built.append(Candidate(plain(item.text) if item.copied else text, (), 0.0, 0.0))
        item.candidates = tuple(built)
    return items
