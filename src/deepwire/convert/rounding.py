"""How far float32 is from float64: as much as that, two programs that compute the same may differ.

How much a model amplifies rounding is luck, above all with EM routing. With other kernels, or with weights
one unit in the last place away, the error may be seven times as large. So it is measured several times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import torch

from deepwire.checkpoint.store import LoadedModel
from deepwire.model.translation_model import TranslationModel

NUDGED = 4
"""Copies with nudged weights of which rounding is measured too."""


def rounding_beyond(
    largest: float | None,
    differences: Sequence[float],
    model: LoadedModel,
    log_probs: Sequence[Sequence[float]],
    score: Callable[[LoadedModel], Sequence[Sequence[float]]],
) -> float | None:
    """The model's own rounding if a difference is more than `largest`; else, or without that, None.

    Args:
        largest: See above.
        differences: From the other program.
        model: Ours in float32.
        log_probs: Of the subwords of some texts by it.
        score: Gives the same by a model in float64, or with nudged weights.
    """
    if largest is None or max(differences) <= largest:
        return None
    with in_float64(model.model) as exact:
        right = score(replace(model, model=exact))
    rounded = [log_probs, *(score(replace(model, model=copy)) for copy in nudged(model.model))]
    return max(max(differences_of(each, right)) for each in rounded)


def nudged(model: TranslationModel) -> Iterator[TranslationModel]:
    """Copies, one after the other, whose parameters are the next numbers up or down, drawn for each.

    The difference is that of one more rounding of each. No random numbers of the process are used.
    """
    for seed in range(NUDGED):
        copy = deepcopy(model)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in copy.parameters():
                up = torch.rand(parameter.shape, generator=generator) < 0.5
                parameter.copy_(torch.nextafter(parameter, torch.where(up, torch.inf, -torch.inf)))
        yield copy


@contextmanager
def in_float64(model: TranslationModel) -> Iterator[TranslationModel]:
    """A copy of a model that computes in float64, as new tensors are meanwhile."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield deepcopy(model).double()
    finally:
        torch.set_default_dtype(usual)


def differences_of(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[float]:
    """|Difference| of the log-probability of every subword of some texts."""
    return [
        abs(our_value - their_value)
        for our_text, their_text in zip(ours, theirs, strict=True)
        for our_value, their_value in zip(our_text, their_text, strict=True)
    ]
