"""Validation of a model with several directions: each apart, and the average over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from deepwire.data.batches.token_store import TokenStore
from deepwire.data.languages import Languages
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.training.logging.meter import perplexity
from deepwire.training.precision_policy import PrecisionPolicy
from deepwire.training.validation import OneDirection, Validation, Validator

MOST_SHOWN = 26
"""Twelve languages with English, and a few more directions: of these each has a line in the log."""


class DirectionsValidator:
    """Scores every direction of a validation set; the scores of the whole are their averages.

    Every direction counts the same, however much text it has. Perplexity is that of the average nll.

    Args:
        validators: One for each direction, by name.
    """

    def __init__(self, validators: Mapping[str, Validator]) -> None:
        self._validators = validators

    def due(self, update: int) -> bool:
        """Whether the validation set is scored after ``update``."""
        return any(validator.due(update) for validator in self._validators.values())

    @torch.no_grad()
    def run(
        self,
        model: TranslationModel,
        precision_policy: PrecisionPolicy,
        update: int,
        interrupted: Callable[[], bool],
    ) -> Validation | None:
        """Score ``model``; None when ``interrupted`` said so in a process, and then nothing has changed."""
        by_direction: dict[str, Validation] = {}
        for name, validator in self._validators.items():
            validation = validator.run(model, precision_policy, update, interrupted)
            if validation is None:
                return None
            by_direction[name] = validation
        scores = [validation.scores for validation in by_direction.values()]
        return Validation(average(scores), [], by_direction)


def average(scores: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each score; the perplexity that belongs to the mean nll."""
    means = {name: sum(each[name] for each in scores) / len(scores) for name in scores[0]}
    return {**means, "perplexity": perplexity(means["nll"])}


def directions_in(store: TokenStore, languages: Languages) -> dict[str, OneDirection]:
    """The directions that a validation set has text of, by name, in the order of the run file."""
    numbers = np.zeros(len(store), np.int64) if store.directions is None else store.directions[:]
    parts = {
        str(direction): OneDirection(languages, direction, np.flatnonzero(numbers == place))
        for place, direction in enumerate(languages.directions)
    }
    return {name: part for name, part in parts.items() if len(part.lines)}


def worth_showing(directions: Mapping[str, float]) -> list[str]:
    """The directions that have a line of their own in the log: all, or of very many three at either end.

    Args:
        directions: The nll of each, in the order of the run file.
    """
    if len(directions) <= MOST_SHOWN:
        return list(directions)
    ordered = sorted(directions, key=directions.__getitem__)
    return [*ordered[:3], *ordered[-3:]]
