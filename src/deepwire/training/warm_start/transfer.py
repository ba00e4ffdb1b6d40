"""From the vocabulary and languages of one model to those of another: parameters move by piece and name.

A piece that both have keeps its row. A piece that is new begins as the mean of the rows of the pieces that
the old vocabulary cuts it into (Gee et al. 2022, Fast Vocabulary Transfer), or, where it knows none of them,
as the mean of all its ordinary rows.

A language that is new begins as the mean of the others. Where the other model has one value for all languages
(a plain norm, a bias of the output), every language begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from deepwire.data.languages import Languages
from deepwire.data.subwords.base import SPECIAL_PIECES, UNK, Vocabulary
from deepwire.errors import ModelError
from deepwire.model.build import build_model
from deepwire.model.meta_init import outline
from deepwire.model.translation_model import TranslationModel

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


def with_separator(rows: RowMap, origin: int, *, wanted: bool) -> RowMap:
    """The rows of pieces and tags, then, where it is wanted, that of the separator, made of row `origin`."""
    return replace(rows, origins=[*rows.origins, [origin]]) if wanted else rows


def _pieces(vocabulary: Vocabulary) -> list[str]:
    """The ordinary pieces, which are numbered from 4."""
    return vocabulary.pieces(range(_SPECIAL, vocabulary.size))


def own_parameters(model: TranslationModel) -> frozenset[str]:
    """The names, all that they have, of the parameters of which each target language has its own."""
    if not model.languages:
        return frozenset()
    sizes = (model.source_vocabulary, model.target_vocabulary)
    build = partial(build_model, model.config, *sizes, languages=model.languages + 1)
    larger = outline(model.config, build)
    shapes = {name: parameter.shape for name, parameter in larger.named_parameters(remove_duplicate=False)}
    named = model.named_parameters(remove_duplicate=False)
    return frozenset(name for name, parameter in named if parameter.shape != shapes[name])


def by_language(
    values: Mapping[str, Tensor],
    old: TranslationModel,
    new: TranslationModel,
    before: Languages | None,
    after: Languages | None,
) -> dict[str, Tensor]:
    """The parameters of one model with those of languages as another model has them, `[L_new, ...]`.

    Args:
        values: Those of the old model, by all names, with the rows of the new vocabulary.
        old, new: The models.
        before, after: Their languages.
    """
    moved, there = dict(values), own_parameters(old)
    shapes = {name: parameter.shape for name, parameter in new.named_parameters(remove_duplicate=False)}
    places = {} if before is None else {language: place for place, language in enumerate(before.names)}
    wanted = () if after is None else after.names
    for name in own_parameters(new) & values.keys():
        value = values[name]
        if name in there:
            moved[name] = torch.stack(
                [value[places[language]] if language in places else value.mean(0) for language in wanted]
            )
        elif value.shape == shapes[name][1:]:
            moved[name] = value.expand(shapes[name])
    return moved
