"""From the rows of one vocabulary to those of another: embeddings and output projections move by piece.

A piece that both have keeps its row. A piece that is new begins as the mean of the rows of the pieces that
the old vocabulary cuts it into (Gee et al. 2022, Fast Vocabulary Transfer), or, where it knows none of them,
as the mean of all its ordinary rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from deepwire.data.languages import Languages
from deepwire.data.subwords.base import SPECIAL_PIECES, UNK, Vocabulary
from deepwire.errors import ModelError

_SPECIAL = len(SPECIAL_PIECES)


@dataclass(frozen=True)
class RowMap:
    """Where the rows of a new vocabulary come from.

    Attributes:
        origins: For each new row the old rows whose mean it begins with; empty: that of all ordinary ones.
        taken: How many ordinary pieces keep their row.
        new: How many are not in the old vocabulary.
        dropped: How many ordinary pieces of the old vocabulary have no place in the new one.
    """

    origins: Sequence[Sequence[int]]
    taken: int
    new: int
    dropped: int

    def rows(self, old: Tensor) -> Tensor:
        """The new rows `[V_new, ...]` of the old ones `[V_old, ...]`."""
        general = old[_SPECIAL:].mean(0)
        return torch.stack(
            [
                old[origin[0]] if len(origin) == 1 else old[list(origin)].mean(0) if origin else general
                for origin in self.origins
            ]
        )


def map_rows(old: Vocabulary, new: Vocabulary) -> RowMap:
    """Where the rows of one side come from: the same string, or the strings that it is cut into.

    Raises:
        ModelError: They have no ordinary piece in common.
    """
    numbers = {piece: number for number, piece in enumerate(_pieces(old), _SPECIAL)}
    pieces = _pieces(new)
    origins: list[Sequence[int]] = [[number] for number in range(_SPECIAL)]
    for number, piece in enumerate(pieces, _SPECIAL):
        same = numbers.get(piece)
        cut = [same] if same is not None else old.encode(new.decode([number]))
        origins.append([row for row in cut if row != UNK])
    taken = len(numbers.keys() & set(pieces))
    if taken == 0:
        raise ModelError(
            "the vocabulary of the model to begin with has no piece in common with that of this run",
            "choose a vocabulary of the same type (data.vocabulary), or begin untrained",
        )
    return RowMap(origins, taken, len(pieces) - taken, len(numbers) - taken)


def with_tags(rows: RowMap, pieces: int, old: Languages | None, new: Languages | None) -> RowMap:
    """The rows of a vocabulary, then those of the tags of languages, which move by the languages' names.

    Args:
        rows: Those of the pieces.
        pieces: Entries of the old vocabulary, behind which its tags stand.
        old, new: The languages of both models; None in a model of one direction.
    """
    before = {} if old is None or old.tags == 0 else {name: pieces + i for i, name in enumerate(old.names)}
    wanted = new.names if new is not None and new.tags else ()
    # A language that is new begins as the mean of the tags that there are.
    tags = [[before[name]] if name in before else list(before.values()) for name in wanted]
    return replace(rows, origins=[*rows.origins, *tags])


def _pieces(vocabulary: Vocabulary) -> list[str]:
    """The ordinary pieces, which are numbered from 4."""
    return vocabulary.pieces(range(_SPECIAL, vocabulary.size))
