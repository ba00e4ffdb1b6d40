"""The search that a configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from deepwire.decoding.beam import beam_search
from deepwire.decoding.config import DecodingConfig
from deepwire.decoding.contract import StateT, StepModel
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.rollout import greedy_search
from deepwire.decoding.sampling import sample


def search(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    numbers: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Hypotheses of each sentence of `source` `[N, S]`, best first: sampled, greedy or by beam search.

    Args:
        limits: Most subwords of each translation, EOS not counted.
        numbers: The line of each sentence; random numbers follow from it.
        prefixes: Subwords that each translation must begin with.
    """
    if config.sampling is not None:
        return sample(model, source, limits, config, config.sampling, numbers, prefixes)
    if config.beam == 1:
        return greedy_search(model, source, limits, config, prefixes)
    return beam_search(model, source, limits, config, prefixes)
