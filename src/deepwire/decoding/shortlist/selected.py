"""A model that continues with the subwords of a shortlist alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic

import torch
from torch import Tensor

from deepwire.decoding.config import DecodingConfig
from deepwire.decoding.contract import StateT, StepModel
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.search import search


def search_selected(
    model: StepModel[StateT],
    tokens: Tensor | None,
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    numbers: Sequence[int],
    prefixes: Sequence[Sequence[int]],
) -> list[list[Hypothesis]]:
    """`search` with a model whose log-probabilities are those of `tokens` `[k]`; None = of all tokens."""
    if tokens is None:
        return search(model, source, limits, config, numbers, prefixes)
    places = [torch.searchsorted(tokens, tokens.new_tensor(prefix)).tolist() for prefix in prefixes]
    known = tokens.tolist()
    return [
        [replace(one, ids=tuple(known[place] for place in one.ids)) for one in found]
        for found in search(OfShortlist(model, tokens), source, limits, config, numbers, places)
    ]


class OfShortlist(Generic[StateT]):
    """Lets a search count in places of the shortlist: a model reads subwords and gives places.

    The shortlist is ascending and begins with PAD, BOS, EOS and UNK, so these four have the same number on
    both sides, and no search has to know of it.

    Args:
        model: A model whose log-probabilities are those of `tokens`.
        tokens: `[k]` the subwords of the shortlist.
    """

    def __init__(self, model: StepModel[StateT], tokens: Tensor) -> None:
        self._model, self._tokens = model, tokens

    def start(self, source: Tensor, max_length: int) -> StateT:
        """Encode `source` `[N, S]`."""
        return self._model.start(source, max_length)

    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Log-probabilities `[rows, k]` of what follows the subwords at the places `tokens` `[rows]`."""
        return self._model.step(self._tokens[tokens], state)
