"""Sentences that are not read as they are stored: with noise, or cut into subwords at random.

All that is drawn depends on the seed of the run, the epoch and the place of a line in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deepwire.data.batches.context_side import ContextSide
from deepwire.data.batches.epoch_order import Indices, mix
from deepwire.data.batches.token_store import Sentences, StoreSide, TokenStore

if TYPE_CHECKING:
    from deepwire.data.text.noise import LineNoise
    from deepwire.data.vocabulary import Vocabularies, Vocabulary

_LINES_AT_ONCE = 256
"""Lines that are read between two times of giving back pages of the store."""
_Noisy = dict[int, tuple[str, list[int]]]
"""The line with noise and its subwords, by place."""
_NOISE = 2
"""Tells the random numbers of noise from those of the segmentation of the two sides."""


@dataclass(frozen=True)
class SentenceDraws:
    """Draws the sentences of a stretch of an epoch.

    Args:
        store: The lines.
        sides: Its source and target side, with context.
        seed: Of the run.
        vocabularies: Cut lines into subwords.
        sampling: Strength of random segmentation; 0: none.
        noise: Of lines; None: none.
    """

    store: TokenStore
    sides: Sequence[StoreSide | ContextSide]
    seed: int
    vocabularies: Vocabularies
    sampling: float
    noise: LineNoise | None

    def of(self, lines: Indices, epoch: int, first: int) -> list[Sentences]:
        """Source and target of pairs that an epoch reads from place `first` on.

        A line that comes twice in an epoch is drawn twice. Contexts stay as they are stored.
        """
        noisy = self._noisy(lines, epoch, first)
        if self.sampling > 0:
            words = (self.vocabularies.source, self.vocabularies.target)
            return [
                self._sampled(side, words[number], lines, (epoch, number, first), noisy[number])
                for number, side in enumerate(self.sides)
            ]
        return [_exchanged(side, lines, changes) for side, changes in zip(self.sides, noisy, strict=True)]

    def _noisy(self, lines: Indices, epoch: int, first: int) -> tuple[_Noisy, _Noisy]:
        """The changes by noise, of both sides."""
        changes: tuple[_Noisy, _Noisy] = {}, {}
        if self.noise is None:
            return changes
        store, places, pairs = self.store, list[int](), list[tuple[str, str | None]]()
        for done, place in enumerate(np.argsort(lines).tolist(), 1):
            line = int(lines[place])
            direction = 0 if store.directions is None else int(store.directions[line])
            seed = mix(self.seed, epoch, _NOISE, first + place, _NOISE)
            if (drawn := self.noise.of(store.source_text(line), seed, direction)) is not None:
                target = None
                if drawn.in_capitals:
                    stored = store.target_text(line)
                    other = self.noise.target(drawn, stored, direction)
                    target = other if other != stored else None
                places.append(place)
                pairs.append((drawn.source, target))
            if done % _LINES_AT_ONCE == 0 or done == len(lines):
                store.source_side.release()
                store.target_side.release()
        sources = self.vocabularies.source.encode_lines([source for source, _ in pairs])
        targets = iter(self.vocabularies.target.encode_lines([each for _, each in pairs if each is not None]))
        for place, (source, target), ids in zip(places, pairs, sources, strict=True):
            other_ids = [] if target is None else next(targets)
            # A model may have positions for the longest stored sentence and no more.
            if len(ids) > store.source_side.longest or len(other_ids) > store.target_side.longest:
                continue
            changes[0][place] = source, ids
            if target is not None:
                changes[1][place] = target, other_ids
        return changes

    def _sampled(
        self,
        sentences: StoreSide | ContextSide,
        vocabulary: Vocabulary,
        lines: Indices,
        where: tuple[int, int, int],
        noisy: _Noisy,
    ) -> Sentences:
        """Random segmentations of one side."""
        epoch, number, first = where
        side = sentences.side if isinstance(sentences, ContextSide) else sentences
        rows: list[Sequence[int]] = [()] * len(lines)
        for done, place in enumerate(np.argsort(lines).tolist(), 1):
            line, changed = int(lines[place]), noisy.get(place)
            seed = mix(self.seed, epoch, number, first + place)
            text = side.text(line) if changed is None else changed[0]
            subwords = vocabulary.sample(text, seed, self.sampling)
            if len(subwords) > side.longest:
                subwords = side.sentence(line).tolist() if changed is None else changed[1]
            rows[place] = _with_context(sentences, line, subwords)
            if done % _LINES_AT_ONCE == 0 or done == len(lines):
                side.release()
        return Sentences.of(rows)


def _with_context(sentences: StoreSide | ContextSide, line: int, subwords: list[int]) -> list[int]:
    return [*sentences.in_front(line), *subwords] if isinstance(sentences, ContextSide) else subwords


def _exchanged(sentences: StoreSide | ContextSide, lines: Indices, noisy: _Noisy) -> Sentences:
    """The stored sentences, some of them exchanged for others."""
    order, back = np.argsort(lines), np.empty(len(lines), np.int64)
    back[order] = np.arange(len(lines))
    stored = sentences.take(lines[order])
    if not noisy:
        return Sentences(stored.tokens, stored.lengths[back], stored.offsets[back])
    places = sorted(noisy)
    new = Sentences.of([_with_context(sentences, int(lines[place]), noisy[place][1]) for place in places])
    lengths, offsets = (values[back].astype(np.int64) for values in (stored.lengths, stored.offsets))
    lengths[places] = new.lengths
    offsets[places] = len(stored.tokens) + new.offsets[:-1]
    tokens = np.concatenate([stored.tokens, new.tokens.astype(stored.tokens.dtype)])
    return Sentences(tokens, lengths, offsets)
