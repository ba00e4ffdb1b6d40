"""Shortlists learned from parallel text: by IBM model 1 over subwords, or all subwords that it has."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepwire.data.batches.token_store import Sentences, StoreWriter, TokenBlock, TokenStore
from deepwire.data.languages import Languages
from deepwire.data.vocabulary import PAD, UNK, Vocabularies
from deepwire.decoding.shortlist import Shortlist, ShortlistTable
from deepwire.errors import DataError, UsageError

MAX_LENGTH = 512
"""Longer sentences are left out: of a thousand words, each says little of any other."""
_PAIRS_PER_READ = 20_000


@dataclass(frozen=True)
class TrainingPairs:
    """The sentence pairs that are learned from: `lines` of a store, ascending.

    A block has at most so many products of a source and a target token, but for a single pair.
    """

    store: TokenStore
    lines: NDArray[np.int64]
    products: int = 1 << 21

    @classmethod
    def of(cls, store: TokenStore, most: int, directions: Sequence[int] | None = None) -> TrainingPairs:
        """At most so many pairs of some directions (None: all), evenly spread over those that can be used."""
        # Behind the pairs there may be sentences that are context alone.
        sides = [side.lengths[: len(store)] for side in (store.source_side, store.target_side)]
        fits = np.all([(lengths > 0) & (lengths <= MAX_LENGTH) for lengths in sides], axis=0)
        if directions is not None and store.directions is not None:
            fits &= np.isin(store.directions[: len(store)], directions)
        lines = np.flatnonzero(fits)
        return cls(store, lines[:: max(1, -(-len(lines) // most))])

    def __len__(self) -> int:
        return len(self.lines)

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """All pairs once, in an order that is always the same, those of about the same lengths together.

        Sources `[n, S]` and targets `[n, T]`: their tokens in ascending order, after PAD.
        """
        for first in range(0, len(self.lines), _PAIRS_PER_READ):
            lines = self.lines[first : first + _PAIRS_PER_READ]
            source, target = (side.take(lines) for side in (self.store.source_side, self.store.target_side))
            order = np.lexsort((target.lengths, source.lengths))
            start = 0
            while start < len(order):
                rows = order[start : start + self.products]
                widths, heights = (
                    np.maximum.accumulate(side.lengths[rows].astype(np.int64)) for side in (source, target)
                )
                products = widths * heights * np.arange(1, len(widths) + 1)
                rows = rows[: max(1, int(np.searchsorted(products, self.products, "right")))]
                yield _padded(source, rows), _padded(target, rows)
                start += len(rows)


def _padded(side: Sentences, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    tokens, lengths = side.gather(rows)
    table = np.full((len(rows), int(lengths.max())), PAD, np.int64)
    table[np.arange(table.shape[1]) < lengths[:, None]] = tokens
    # Order says nothing here, and neighbours that are alike are looked up faster.
    return np.sort(table, axis=1)


MAX_SUBWORD_PAIRS = 1 << 24
"""Pairs of subwords whose probability is learned, 16 bytes each."""
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many sentence pairs are done, and of how many."""


class LexicalProbabilities(NamedTuple):
    """t(target | source) of pairs of subwords, sorted by source and then by target; all `[n]`.

    Target subwords that stand beside a source subword nowhere have none.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    probability: NDArray[np.float32]


_PairCounts = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Pairs of subwords, source * target size + target, and how often they stand in one sentence pair."""


def train_ibm_model1(
    pairs: TrainingPairs,
    sizes: tuple[int, int],
    *,
    rounds: int,
    tell: Progress,
    most: int = MAX_SUBWORD_PAIRS,
) -> LexicalProbabilities:
    """t(f | e) of IBM model 1 (Brown et al. 1993, section 4.1), by `rounds` of EM from equal probabilities.

    Every target subword f of a sentence comes from one of its source subwords e or from none (e_0), each of
    them as likely as another. Only pairs (e, f) that stand in one sentence pair have a probability. Where
    there are more than `most`, those with the smallest n(e, f)^2 / (n(e) n(f)) are dropped on the way.
    `sizes` are the entries of the source and the target vocabulary.
    """
    keys = torch.from_numpy(_candidates(pairs, sizes, most, tell)[0])
    width = sizes[1]
    owners = keys // width
    probabilities = torch.ones(len(keys))
    for number in range(1, rounds + 1):
        sums = torch.zeros(len(keys), dtype=torch.float64)
        done = 0
        for source, target in pairs.blocks():
            # p(target subword j comes from source subword i) counts for the pair of the two.
            pair_keys = _keys(_with_null(source, sizes[0]), torch.from_numpy(target), width)
            indices = torch.searchsorted(keys, pair_keys).clamp_(max=len(keys) - 1)
            flat = indices.view(-1)
            known = keys.index_select(0, flat) == pair_keys.view(-1)
            expected = probabilities.index_select(0, flat).masked_fill_(~known, 0.0)
            by_sentence = expected.view(pair_keys.shape)
            by_sentence /= by_sentence.sum(1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny)
            sums.index_add_(0, flat, expected.double())
            done += len(source)
            tell(f"round {number} of {rounds}", done, len(pairs))
        totals = torch.zeros(sizes[0] + 1, dtype=torch.float64).index_add_(0, owners, sums)
        probabilities = (sums / totals[owners].clamp_(min=torch.finfo(torch.float64).tiny)).float()
    # What comes from no source subword at all is of no use here.
    real = int(torch.searchsorted(keys, sizes[0] * width))
    return LexicalProbabilities(
        owners[:real].numpy(), (keys[:real] % width).numpy(), probabilities[:real].numpy()
    )


def _with_null(source: NDArray[np.int64], none: int) -> Tensor:
    """Source subwords `[n, S + 1]` with the one in front that stands for no subword."""
    return torch.from_numpy(np.insert(source, 0, none, axis=1))


def _keys(source: Tensor, target: Tensor, width: int) -> Tensor:
    """`[n, S, T]`: the key of each source subword with each target subword; padding has keys nobody has."""
    keys = source.unsqueeze(2) * width + target.unsqueeze(1)
    return keys.masked_fill_((source == PAD).unsqueeze(2) | (target == PAD).unsqueeze(1), -1)


def _candidates(pairs: TrainingPairs, sizes: tuple[int, int], most: int, tell: Progress) -> _PairCounts:
    """The pairs of subwords that stand in one sentence pair, at most `most`."""
    counts: _PairCounts = np.zeros(0, np.int64), np.zeros(0, np.float32)
    waiting: list[NDArray[np.int64]] = []
    held = done = 0
    for source, target in pairs.blocks():
        keys = _keys(_with_null(source, sizes[0]), torch.from_numpy(target), sizes[1]).view(-1)
        waiting.append(keys[keys >= 0].numpy())
        held += len(waiting[-1])
        done += len(source)
        if held > most or done == len(pairs):
            fresh, times = np.unique(np.concatenate(waiting), return_counts=True)
            merged, places = np.unique(np.concatenate([counts[0], fresh]), return_inverse=True)
            added = np.bincount(places, np.concatenate([counts[1], times]))
            counts = _strongest((merged, added.astype(np.float32)), sizes, most)
            waiting, held = [], 0
        tell("counting", done, len(pairs))
    return counts


def _strongest(counts: _PairCounts, sizes: tuple[int, int], most: int) -> _PairCounts:
    """The half of `most` that belong together most, where there are more than `most`."""
    keys, times = counts
    if len(keys) <= most:
        return counts
    source, target = np.divmod(keys, sizes[1])
    of_source = np.bincount(source, times, sizes[0] + 1).astype(np.float32)
    of_target = np.bincount(target, times, sizes[1]).astype(np.float32)
    strength = times / of_source[source] * (times / of_target[target])
    # No subword may lose its place beside nothing (e_0), or its probabilities would be those of the others.
    strength[source == sizes[0]] = np.inf
    kept = np.sort(np.argpartition(strength, -(most // 2))[-(most // 2) :])
    return keys[kept], times[kept]


MIN_PROBABILITY = 1e-4
"""Less probable translations are left out, however few there are."""
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def build_table(
    learned: LexicalProbabilities,
    counts: NDArray[np.int64],
    vocabularies: Vocabularies,
    *,
    best: int,
    first: int,
) -> ShortlistTable:
    """The table of lexical probabilities.

    Args:
        counts: `[V_t]` how often each target subword stands in the text.
        best: Most target subwords of a source subword.
        first: How many of the most frequent target subwords every shortlist has.
    """
    source, target = vocabularies.source, vocabularies.target
    likely = learned.probability >= MIN_PROBABILITY
    owners, words, strength = (values[likely] for values in learned)
    order = np.lexsort((words, -strength, owners))
    owners, words = owners[order], words[order]
    starts = np.searchsorted(owners, np.arange(source.size))
    kept = np.arange(len(owners)) - starts[owners] < best
    # Names and numbers stay as they are.
    pieces, others = (
        {piece: number for number, piece in enumerate(each.pieces(range(UNK + 1, each.size)), UNK + 1)}
        for each in (source, target)
    )
    pairs = [(number, others[piece]) for piece, number in pieces.items() if piece in others]
    same = np.array(pairs, np.int64).reshape(-1, 2)
    keys = np.concatenate([owners[kept] * target.size + words[kept], same[:, 0] * target.size + same[:, 1]])
    owners, words = np.divmod(np.unique(keys), target.size)
    offsets = np.searchsorted(owners, np.arange(source.size + 1))
    frequent = np.argsort(-counts, kind="stable")[:first]
    spelled = [number for piece, number in others.items() if _BYTE.fullmatch(piece)]
    always = np.unique(np.concatenate([np.arange(UNK + 1), frequent, np.array(spelled, np.int64)]))
    return ShortlistTable(
        torch.from_numpy(always),
        torch.from_numpy(offsets),
        torch.from_numpy(words),
        target.size,
    )


_LINES_PER_BLOCK = 4096
_LINES_AT_ONCE = 1 << 16
_MOST_PAIRS = 1_000_000  # to learn from, for each target language
_ROUNDS = 4


def learn_shortlist(
    store: TokenStore,
    vocabularies: Vocabularies,
    into: Mapping[str, Sequence[int] | None],
    tell: Progress,
    *,
    best: int,
    first: int,
) -> Shortlist:
    """A shortlist with a table for each target language.

    `into` has target languages (one without a name in a model of one direction) and the numbers of their
    directions in the store; None: all of it. `best` and `first` are those of `build_table`.

    Raises:
        DataError: There is no pair to learn from.
    """
    tables: dict[str, ShortlistTable] = {}
    made_from: dict[str, dict[str, object]] = {}
    for language, directions in into.items():
        pairs = TrainingPairs.of(store, _MOST_PAIRS, directions)
        if not len(pairs):
            raise DataError(
                f"there is no sentence pair to learn a shortlist from{f' into {language}' * bool(language)}"
            )
        sizes = vocabularies.source.size, vocabularies.target.size
        learned = train_ibm_model1(pairs, sizes, rounds=_ROUNDS, tell=tell)
        counts = np.zeros(sizes[1], np.int64)
        for _, target in pairs.blocks():
            counts += np.bincount(target[target != PAD], minlength=sizes[1])
        tables[language] = build_table(learned, counts, vocabularies, best=best, first=first)
        made_from[language] = {"pairs": len(pairs), "best": best, "first": first}
    return Shortlist(tables, vocabularies.digest, made_from)


def learn_seen_shortlist(
    store: TokenStore,
    vocabularies: Vocabularies,
    into: Mapping[str, Sequence[int] | None],
    tell: Progress,
) -> Shortlist:
    """A shortlist of all target subwords that the text of a language has, whatever the source.

    Arguments and errors are those of `learn_shortlist`.
    """
    size = vocabularies.target.size
    # Which target subwords the text of each direction has, `[D, V_t]`, and its lines, `[D]`.
    count = 1 if store.directions is None or not len(store) else int(store.directions[:].max()) + 1
    seen, lines = np.zeros((count, size), bool), np.zeros(count, np.int64)
    for start in range(0, len(store), _LINES_AT_ONCE):
        block = np.arange(start, min(start + _LINES_AT_ONCE, len(store)))
        read = store.target_side.take(block)
        of_lines = np.zeros(len(block), np.int64) if store.directions is None else store.directions[block]
        seen[np.repeat(of_lines, read.lengths), read.tokens] = True
        lines += np.bincount(of_lines, minlength=count)
        tell("reading", int(block[-1]) + 1, len(store))
    tables: dict[str, ShortlistTable] = {}
    made_from: dict[str, dict[str, object]] = {}
    for language, directions in into.items():
        rows = [row for row in range(len(lines)) if directions is None or row in directions]
        if not lines[rows].sum():
            raise DataError(f"there is no text to find subwords in{f' in {language}' * bool(language)}")
        marks = seen[rows].any(0) | (np.arange(size) <= UNK)
        tables[language] = ShortlistTable.of_all(torch.from_numpy(marks.nonzero()[0]), size)
        made_from[language] = {"lines": int(lines[rows].sum())}
    return Shortlist(tables, vocabularies.digest, made_from)


def directions_into(languages: Languages | None, to: str | None) -> dict[str, Sequence[int] | None]:
    """The target languages of a model (only `to`, where given) and the numbers of their directions.

    Raises:
        UsageError: The model does not know that language, or has one direction only.
    """
    if languages is None:
        if to is not None:
            raise UsageError("the model has one direction only", "leave out --to")
        return {"": None}
    if to is not None:
        languages.target(to)
    return {
        name: [number for number, direction in enumerate(languages.directions) if direction.target == name]
        for name in languages.targets
        if to in (None, name)
    }


@contextmanager
def tokenized_store(text: Iterable[tuple[str, str]], vocabularies: Vocabularies) -> Iterator[TokenStore]:
    """Raw sentence pairs as a token store, which is gone after the block; in constant memory."""
    reader = iter(text)
    with tempfile.TemporaryDirectory(prefix="deepwire-shortlist-") as temporary:
        folder = Path(temporary) / "pairs"
        with StoreWriter(folder, vocabularies.source.size, vocabularies.target.size) as writer:
            while read := list(islice(reader, _LINES_PER_BLOCK)):
                source, target = zip(*read, strict=True)
                empty = [""] * len(read)
                writer.add(
                    TokenBlock.of(vocabularies.source.encode_lines(source), empty),
                    TokenBlock.of(vocabularies.target.encode_lines(target), empty),
                )
            writer.finish()
        yield TokenStore(folder)
