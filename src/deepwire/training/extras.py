"""Extras of training: an object each, with methods that the loop calls around updates, passes and steps."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.counts import Probability
from deepwire.config.section import NumberSection, UnusedSettings

if TYPE_CHECKING:  # a run file is read without them, and sooner
    from deepwire.model.config import ModelConfig
    from deepwire.model.recurrent_depth import RecurrentStack
    from deepwire.model.stack import Stack
    from deepwire.model.stack_spec import Side
    from deepwire.model.translation_model import TranslationModel
    from deepwire.training.device_batches import DeviceBatch


Append = Callable[[Path, Mapping[str, object]], None]
"""Appends a record to a file of the run."""


class Extra:
    """Base of what training does besides minimising the loss; every method does nothing by default.

    Attributes:
        name: Name of its loss in the records; empty where it has none.
        weight: Weight of that loss.
    """

    name: str = ""
    weight: float = 0.0

    def before_update(self, update: int) -> None:
        """Called before the passes of update number `update`, from 1."""

    def during_pass(self) -> AbstractContextManager[object]:
        """Makes the context of a forward pass and of its backward pass, which may compute layers again."""
        return nullcontext()

    def loss(self, batch: DeviceBatch) -> Tensor | None:
        """Computes a loss to add to that of a batch, summed over its target tokens, within the context."""
        del batch
        return None

    def before_step(self, update: int) -> None:
        """Called when the gradient of an update is complete, before it is clipped."""

    def after_step(self, update: int) -> None:
        """Called when the optimizer has made its step."""


def update_seed(seed: int, update: int, purpose: str = "") -> int:
    """A function of the run's seed, the number of the update and what the numbers are for; below 2^56.

    The seed for dropout on the first process has no purpose.
    """
    text = f"{seed} update {update} {purpose}".rstrip()
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


class ConnectionUpdates(Extra):
    """Tells the connections of a model which update is next; some change with it."""

    def __init__(self, model: TranslationModel) -> None:
        self._model = model

    def before_update(self, update: int) -> None:
        """Tell the connections."""
        self._model.begin_update(update)


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
        for side in model.sides:
            connection = model.stack(side).connection
            if not self.of(side):
                continue
            mixer = model.stack(side).mixer
            if mixer.reads_below:
                raise ValueError(
                    f"layer_drop.{side}: {side}.mixer {mixer.type} reads what the layers below made, so none "
                    f"can be left out; set layer_drop.{side} to 0"
                )
            droppable = connection.droppable()
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


_DEVIATION = 0.5


class RoundsDraw(Extra):
    """Draws r = Poisson(l) + 1, ln l normal with deviation 1/2 and mean ln(rounds) - 1/8.

    Geiping et al. 2025. The mean of l is that of the settings. All passes and processes of an update have
    the same r.

    Args:
        stack: The stack that takes so many rounds.
        seed: Of the run; r depends on it and the number of the update alone.
    """

    def __init__(self, stack: RecurrentStack, seed: int) -> None:
        self._stack, self._seed = stack, seed

    def before_update(self, update: int) -> None:
        """Set the rounds of an update."""
        generator = random.Random(update_seed(self._seed, update, "rounds"))
        mean = math.log(self._stack.recurrence.rounds) - _DEVIATION**2 / 2
        rate = math.exp(generator.normalvariate(mean, _DEVIATION))
        # As many as events at unit rate come before that time.
        count, time = 0, generator.expovariate(1.0)
        while time < rate:
            count, time = count + 1, time + generator.expovariate(1.0)
        self._stack.training_rounds = count + 1


class GradientRecords(Extra):
    """Records the norm of each layer's gradient, before clipping, every so many updates."""

    def __init__(self, append: Append, path: Path, model: TranslationModel, every: int) -> None:
        self._append, self._path, self._model, self._every = append, path, model, every

    def before_step(self, update: int) -> None:
        """Record the gradients where that is due."""
        if update % self._every == 0:
            self._append(self._path, {"update": update, **gradient_norms(layers_of(self._model))})


class DepthWeightRecords(Extra):
    """Records how a model weighs its layers, every so many updates; nothing of a model without weights."""

    def __init__(self, append: Append, path: Path, model: TranslationModel, every: int) -> None:
        self._append, self._path, self._model, self._every = append, path, model, every

    def after_step(self, update: int) -> None:
        """Record the weights where that is due."""
        if update % self._every == 0 and (weights := depth_weights(self._model)):
            self._append(self._path, {"update": update, **weights})


def layers_of(model: TranslationModel) -> list[tuple[str, list[nn.Parameter]]]:
    """Every parameter once: ``encoder.1``, ..., ``encoder.rest``, likewise the decoder, ``other``."""
    layers: list[tuple[str, list[nn.Parameter]]] = []
    seen: set[nn.Parameter] = set()
    for side, stack in model.stacks().items():
        for name, parameters in stack.parameters_by_layer():
            layers.append((f"{side}.{name}", [each for each in parameters if each not in seen]))
            seen |= set(parameters)
    return [*layers, ("other", [each for each in model.parameters() if each not in seen])]


@torch.no_grad()
def gradient_norms(layers: list[tuple[str, list[nn.Parameter]]]) -> dict[str, object]:
    """Euclidean norm of the gradient of each list of parameters; 0 where none has a gradient."""
    device = next(parameter.device for _, parameters in layers for parameter in parameters)
    nothing = torch.zeros((), device=device)
    lengths: list[Tensor] = []
    for _, parameters in layers:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        lengths.append(nn.utils.get_total_norm(gradients).float() if gradients else nothing)
    # One wait for the device, not one for each layer.
    values: list[float] = torch.stack(lengths).tolist()
    return {name: value for (name, _), value in zip(layers, values, strict=True)}


def depth_weights(model: TranslationModel) -> dict[str, object]:
    """The depth weights of both stacks by ``side.key``, as lists of rows; of several for a pair the mean."""
    rows_by_key: dict[str, object] = {}
    for side, stack in model.stacks().items():
        for weights in stack.depth_weights():
            values = weights.values.detach().float()
            values = values.mean(-1) if values.dim() > 2 else values
            rows_by_key[f"{side}.{weights.key}"] = values.tolist()
    return rows_by_key
