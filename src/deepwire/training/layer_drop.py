"""Layers left out of updates at random: LayerDrop, stochastic depth."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from deepwire.config.counts import Probability
from deepwire.config.section import NumberSection, UnusedSettings
from deepwire.training.extras import Extra, update_seed

if TYPE_CHECKING:  # a run file is read without them, and sooner
    from deepwire.model.config import ModelConfig
    from deepwire.model.stack import Stack
    from deepwire.model.stack_spec import Side
    from deepwire.model.translation_model import TranslationModel


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


class LayerDrop(Extra):
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

    def before_update(self, update: int) -> None:
        """Choose the layers that an update does without."""
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
