"""Translations of a batch by the search that a configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from deepwire.decoding.beam_search import beam_search
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.greedy_and_sampling import greedy_search, sample
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.step_models import ShortlistModel, StateT, StepModel


def generate(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    numbers: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
    *,
    shortlist: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Hypotheses of each sentence of `source` `[N, S]`, best first: sampled, greedy or by beam search.

    Args:
        model: The model.
        source: Subword ids, padded with PAD.
        limits: Most subwords of each translation, EOS not counted.
        config: How to search.
        numbers: The line of each sentence; random numbers follow from it.
        prefixes: Subwords that each translation must begin with.
        shortlist: `[k]` ascending, the subwords whose log-probabilities the model gives; None = all.
    """
    if shortlist is not None:
        return _generate_from(shortlist, model, source, limits, config, numbers, prefixes)
    if config.sampling is not None:
        return sample(model, source, limits, config, config.sampling, numbers, prefixes)
    if config.beam == 1:
        return greedy_search(model, source, limits, config, prefixes)
    return beam_search(model, source, limits, config, prefixes)


def _generate_from(
    shortlist: Tensor,
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    numbers: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None,
) -> list[list[Hypothesis]]:
    """`generate` in indices of the shortlist, and back to subwords."""
    indices = None
    if prefixes is not None:
        indices = [torch.searchsorted(shortlist, shortlist.new_tensor(ids)).tolist() for ids in prefixes]
    subwords = shortlist.tolist()
    by_sentence = generate(ShortlistModel(model, shortlist), source, limits, config, numbers, indices)
    return [
        [replace(hypothesis, ids=tuple(subwords[index] for index in hypothesis.ids)) for hypothesis in best]
        for best in by_sentence
    ]
