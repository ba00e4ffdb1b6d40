"""Random draws before each update: layers left out (LayerDrop, stochastic depth), rounds of recurrent depth.

Also the seeds of single updates.
"""

from __future__ import annotations

import hashlib
import math
import random
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from deepwire.config.counts import Probability
from deepwire.config.section import NumberSection, UnusedSettings

if TYPE_CHECKING:  # a run file is read without them, and sooner
    from deepwire.model.config import ModelConfig
    from deepwire.model.recurrent_depth import RecurrentStack
    from deepwire.model.stack import Stack
    from deepwire.model.stack_spec import Side
    from deepwire.model.translation_model import TranslationModel


def update_seed(seed: int, update: int, purpose: str = "") -> int:
    """A function of the run's seed, the number of the update and what the numbers are for; below 2^56.

    The seed for dropout on the first process has no purpose.
    """
    text = f"{seed} update {update} {purpose}".rstrip()
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


class LayerDropConfig(NumberSection):
    """How often a layer is left out; one number for both sides.

    As it comes, LayerDrop (Fan et al. 2020, Reducing Transformer Depth on Demand with Structured Dropout).
    With `depth: linear` and `rescale`, stochastic depth (Huang et al. 2016, Deep Networks with Stochastic
    Depth), which Pham et al. 2019 (Very Deep Self-Attention Networks) use with `unit: sublayer`.
    """

    written_as = (Probability,)
    plain_sets = ("encoder", "decoder")
    no_number = "a number is a probability, from 0 to below 1, not {}"

    encoder: float = Field(0.0, ge=0, lt=1, description="probability that an encoder layer is left out")
    decoder: float = Field(0.0, ge=0, lt=1, description="probability that a decoder layer is left out")
    unit: Literal["layer", "sublayer"] = Field(
        "layer", description="what is left out at once: a layer, or each of its sub-layers for itself"
    )
    depth: Literal["constant", "linear"] = Field(
        "constant",
        description="the probability is that of every layer, or that of the last of L layers, and l / L of "
        "it for layer l",
    )
    rescale: bool = Field(
        False,
        description="divide the output of what is left in by the probability that it is, so that its "
        "expected value is that of inference; residual connections that add just this output",
    )

    def unused_settings(self) -> UnusedSettings:
        """How layers are left out where none is."""
        if not self.encoder and not self.decoder:
            for name in ("unit", "depth", "rescale"):
                yield name, "no layer is left out; set encoder or decoder"

    def check(self, model: ModelConfig) -> None:
        """Refuse connections that need all layers, with a `ValueError`; nothing is built."""
        if model.is_decoder_only and self.encoder not in (0, self.decoder):
            raise ValueError(
                f"layer_drop.encoder is {self.encoder:g}, and the model has no encoder; set it to 0, and "
                "layer_drop.decoder to what you want"
            )
        for side, spec in model.specs().items():
            connection = model.stack(side).connection
            if not self.of(side):
                continue
            mixer = model.stack(side).mixer
            if mixer.reads_below:
                raise ValueError(
                    f"layer_drop.{side}: {side}.mixer {mixer.type} reads what the layers below made, so none "
                    f"can be left out; set layer_drop.{side} to 0"
                )
            droppable = connection.droppable(spec)
            if droppable == "nothing":
                raise ValueError(
                    f"layer_drop.{side}: {side}.connection {connection.type} needs every layer as it is set; "
                    f"set layer_drop.{side} to 0"
                )
            if droppable == "layers" and (self.unit == "sublayer" or self.rescale):
                setting = "unit: sublayer" if self.unit == "sublayer" else "rescale: true"
                raise ValueError(
                    f"layer_drop.{setting} is for residual connections, and {side}.connection is "
                    f"{connection.type}: it can leave out whole layers"
                )
            if self.rescale and not connection.adds_in_proportion:
                raise ValueError(
                    f"layer_drop.rescale: true: {side}.connection {connection.type} adds something else than "
                    "what sub-layers give, which a factor of theirs does not scale; leave rescale out"
                )

    def of(self, side: Side) -> float:
        """The probability of one side."""
        return self.encoder if side == "encoder" else self.decoder


class LayerDrop:
    """Draws before each update which layers it does without: the same in all its passes and processes.

    So losses do not depend on how an update is shared among processes, and sharded parameters are gathered
    by all of them at once.

    Args:
        config: How often.
        model: Whose stacks are told.
        seed: Of the run; the layers of an update depend on it and the number of the update alone.
    """

    def __init__(self, config: LayerDropConfig, model: TranslationModel, seed: int) -> None:
        self._config, self._seed = config, seed
        self._stacks = [(stack, config.of(side)) for side, stack in model.stacks().items()]
        for stack, probability in self._stacks:
            if config.rescale:
                shares = self._shares(stack, probability)
                stack.call_scales = tuple(1 / (1 - shares[call.layer]) for call in stack.calls)

    def draw(self, update: int) -> None:
        """Leave layers out of the stacks, until it is called again."""
        generator = random.Random(update_seed(self._seed, update, "layers"))
        for stack, probability in self._stacks:
            shares = self._shares(stack, probability)
            whole = [generator.random() < share for share in shares]
            stack.dropped_calls = frozenset(
                index
                for index, call in enumerate(stack.calls)
                if (
                    whole[call.layer]
                    if self._config.unit == "layer"
                    else generator.random() < shares[call.layer]
                )
            )

    def _shares(self, stack: Stack, probability: float) -> list[float]:
        """The probability of each layer of a stack."""
        if self._config.depth == "constant":
            return [probability] * stack.depth
        return [probability * (layer + 1) / stack.depth for layer in range(stack.depth)]


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
