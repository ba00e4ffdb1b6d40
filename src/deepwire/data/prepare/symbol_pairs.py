"""Sentence pairs with symbols for the placeholders that both sides have, as training sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from deepwire.data.text.pairs import Pair, PairBlock, Texts
from deepwire.data.text.placeholders import protect_pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import DataError

SymbolUse = Literal["none", "read", "stored"]
"""Symbols for placeholders: nowhere, in the pieces, or in the pieces and in the text of the store."""


def symbol_use(placeholders: bool, *, training: bool) -> SymbolUse:
    """Where a store has symbols: validation text stays as it is, for scores of whole translations."""
    if not placeholders:
        return "none"
    return "stored" if training else "read"


def require_symbols(vocabularies: Vocabularies, placeholders: bool) -> None:
    """See that a vocabulary has symbols for placeholders exactly where they are asked for.

    Raises:
        DataError: It is one that was learned otherwise.
    """
    if vocabularies.has_symbols == placeholders:
        return
    fault = "has no symbols for placeholders" if placeholders else "was learned with symbols for placeholders"
    raise DataError(f"the vocabulary {fault}", f"set data.placeholders to {str(not placeholders).lower()}")


def with_symbols(pairs: PairBlock) -> PairBlock:
    """The pairs with symbols for the placeholders that both sides have."""
    sides = zip(pairs.source.strings(), pairs.target.strings(), strict=True)
    sources, targets = zip(*(protect_pair(*pair) for pair in sides), strict=True) if len(pairs) else ((), ())
    return PairBlock(
        pairs.corpus,
        pairs.numbers,
        Texts.of([text.encode() for text in sources]),
        Texts.of([text.encode() for text in targets]),
    )


class SymbolPairs(Sequence[Pair]):
    """Pairs with symbols for placeholders, made when they are asked for."""

    def __init__(self, pairs: PairBlock) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, place: int) -> Pair: ...
    @overload
    def __getitem__(self, place: slice) -> list[Pair]: ...
    def __getitem__(self, place: int | slice) -> Pair | list[Pair]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        pair = self._pairs[place]
        source, target = protect_pair(pair.source, pair.target)
        return pair._replace(source=source, target=target)
