"""How often an encoder with recurrent depth runs its middle in each update."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from deepwire.training.update_seeds import update_seed

if TYPE_CHECKING:  # a run file is read without it, and sooner
    from deepwire.model.recurrent_depth import RecurrentStack

_DEVIATION = 0.5


class RoundsDraw:
    """Draws r = Poisson(l) + 1, ln l normal with deviation 1/2 and mean ln(rounds) - 1/8.

    Geiping et al. 2025. The mean of l is that of the settings. All passes and processes of an update have
    the same r.

    Args:
        stack: That is told.
        seed: Of the run; r depends on it and the number of the update alone.
    """

    def __init__(self, stack: RecurrentStack, seed: int) -> None:
        self._stack, self._seed = stack, seed

    def draw(self, update: int) -> None:
        """Set the rounds, until it is called again."""
        generator = random.Random(update_seed(self._seed, update, "rounds"))
        mean = math.log(self._stack.recurrence.rounds) - _DEVIATION**2 / 2
        rate = math.exp(generator.normalvariate(mean, _DEVIATION))
        # As many as events at unit rate come before that time.
        count, time = 0, generator.expovariate(1.0)
        while time < rate:
            count, time = count + 1, time + generator.expovariate(1.0)
        self._stack.training_rounds = count + 1
