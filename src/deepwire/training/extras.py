"""Extras of training: an object each, with methods that the loop calls around updates, passes and steps."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.counts import Count, Positive, Probability
from deepwire.config.section import NumberSection, Section, UnusedSettings
from deepwire.data.vocabulary import BOS, EOS
from deepwire.errors import ModelError, UsageError
from deepwire.model.cross_attention import CrossAttentionRecorder
from deepwire.model.translation_model import TranslationModel

if TYPE_CHECKING:  # a run file is read without them, and sooner
    from deepwire.model.config import ModelConfig
    from deepwire.model.recurrent_depth import RecurrentStack
    from deepwire.model.stack import Stack
    from deepwire.model.stack_spec import Side
    from deepwire.training.device import DeviceBatch
    from deepwire.training.parallel_strategy import ParallelStrategy

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
    by all of them at once. The layers follow from the seed of the run and the number of the update.
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


class EmaConfig(Section):
    """An exponential moving average: after each update, average += (1 - decay) (weights - average).

    It forgets the weights of n updates ago with decay^n: at 0.999 it spans about a thousand updates.
    """

    decay: float = Field(
        default=0.999, gt=0, lt=1, description="share of the old average that an update keeps"
    )
    start: Count = Field(
        default=0, ge=0, description="until this update the average is the weights themselves"
    )
    warmup: bool = Field(
        default=True,
        description="n updates after start the decay is at most (1 + n) / (10 + n): the first weights "
        "are soon forgotten",
    )
    model: Literal["average", "weights"] = Field(
        default="average",
        description="what validation scores and the model of a checkpoint is; the other is kept beside it",
    )


class MovingAverage(Extra):
    """Averages of the trained parameters, in float32 beside them; a frozen one is its own average."""

    def __init__(
        self, parameters: Mapping[str, Tensor], config: EmaConfig, strategy: ParallelStrategy
    ) -> None:
        self.config, self._strategy, self._parameters = config, strategy, dict(parameters)
        self._averages = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def after_step(self, update: int) -> None:
        """Move the averages towards the weights."""
        torch._foreach_lerp_(*self._local(), self.step_size(update))

    def step_size(self, update: int) -> float:
        """How far the averages move after an update: 1 - decay; all the way until ``start``."""
        since = update - self.config.start
        if since <= 0:
            return 1.0
        decay = self.config.decay
        # The warm-up is that of TensorFlow's ExponentialMovingAverage with num_updates.
        return 1 - (min(decay, (1 + since) / (10 + since)) if self.config.warmup else decay)

    @contextmanager
    def as_model(self) -> Iterator[None]:
        """Within the block the model has the averages, where the user wants that, and they its weights."""
        swaps = self.config.model == "average"
        if swaps:
            self._swap()
        try:
            yield
        finally:
            if swaps:
                self._swap()

    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint keeps beside the model, taken within `as_model`.

        ``weights.NAME`` where the model has the averages, else ``average.NAME``.
        """
        return {f"{self._prefix}{name}": average for name, average in self._averages.items()}

    def load_state(self, tensors: Mapping[str, Tensor] | None) -> None:
        """Continue from what `state` gave; the model has been filled from the checkpoint before.

        Args:
            tensors: Those and others; None where another process has them.

        Raises:
            ModelError: If a tensor is missing or has another shape.
        """
        averages = self.state()
        kept = {name: tensor for name, tensor in (tensors or {}).items() if name in averages}
        if tensors is not None and any(
            name not in kept or kept[name].shape != averages[name].shape for name in averages
        ):
            raise ModelError("the averages in the checkpoint do not fit the model")
        self._strategy.load(averages, kept)
        if self.config.model == "average":
            self._swap()

    def owns(self, name: str) -> bool:
        """Whether a tensor of this name is one of `state`."""
        return name.startswith(self._prefix)

    @property
    def _prefix(self) -> str:
        return "weights." if self.config.model == "average" else "average."

    @torch.no_grad()
    def _swap(self) -> None:
        for average, weight in zip(*self._local(), strict=True):
            kept = average.clone()
            average.copy_(weight)
            weight.copy_(kept)

    def _local(self) -> tuple[list[Tensor], list[Tensor]]:
        """Averages and weights, as far as this process holds them."""
        local = self._strategy.local
        return (
            [local(average) for average in self._averages.values()],
            [local(parameter.detach()) for parameter in self._parameters.values()],
        )


_SMALLEST = 1e-9
"""Smaller weights count as this one: a logarithm must be finite."""


class GuidedAlignmentConfig(NumberSection):
    """A head that learns alignments, those that `data.train` names; a plain number is the weight."""

    written_as = (Positive,)
    plain_sets = ("weight",)
    no_number = "a number is the weight, above 0, not {}; null: no guided alignment"

    weight: Positive = Field(default=0.05, description="weight of the loss of the alignment")
    layer: int | None = Field(None, ge=1, description="decoder layer, from 1; null = the last but one")
    head: int = Field(1, ge=1, description="head, from 1")
    step: Literal["writes", "reads"] = Field(
        "reads",
        description="the step of the decoder that writes a subword, or the next one, which reads it",
    )

    def layer_of(self, layers: int) -> int:
        """The layer, from 1, of a decoder with so many."""
        return max(1, layers - 1) if self.layer is None else self.layer


class GuidedAlignment(Extra):
    """The loss of a head.

    Raises:
        UsageError: It has no such layer or head, or does not look at the source.
    """

    name = "guided_alignment"

    def __init__(self, config: GuidedAlignmentConfig, model: TranslationModel) -> None:
        self.weight, self._head, self._reads = config.weight, config.head - 1, config.step == "reads"
        self._model = model
        heads = _heads(model)
        layers = model.config.decoder.layers
        self._layer = config.layer_of(layers) - 1
        if self._layer not in heads:
            # Mixers of other packages may look at the source, and not show how.
            shown = ", ".join(str(layer + 1) for layer in heads)
            there = (
                f"layers 1 to {layers}"
                if len(heads) == layers
                else f"weights of the source in layers {shown}"
            )
            raise UsageError(f"training.guided_alignment.layer {self._layer + 1}: the decoder has {there}")
        if config.head > heads[self._layer]:
            raise UsageError(
                f"training.guided_alignment.head {config.head}: layer {self._layer + 1} has heads 1 to "
                f"{heads[self._layer]}"
            )

    @contextmanager
    def during_pass(self) -> Iterator[None]:
        """Keep the weights of the head."""
        decoder = self._model.decoder
        decoder.recorder = CrossAttentionRecorder([self._layer])
        try:
            yield
        finally:
            decoder.recorder = None

    def loss(self, batch: DeviceBatch) -> Tensor | None:
        """Sums over the target subwords with links, nats, of several passes the mean.

        None where there are no links, or the layer was left out (LayerDrop).
        """
        recorder = self._model.decoder.recorder
        weights = None if recorder is None else recorder.weights.get(self._layer)
        if weights is None or batch.links is None or not len(batch.links):
            return None
        rows, targets, sources = batch.links.unbind(1)
        places = rows * weights.size(2) + targets
        shares = 1 / torch.bincount(places)[places].float()
        passes = weights.view(-1, len(batch.source), *weights.shape[1:])
        chosen = passes[:, rows, self._head, targets + self._reads, sources].float()
        total: Tensor = (chosen.clamp(min=_SMALLEST).log() * shares).sum()
        return -total / len(passes)


@torch.no_grad()
def _heads(model: TranslationModel) -> dict[int, int]:
    """How many heads each layer has that looks at the source, from 0."""
    device, mode = next(model.parameters()).device, model.training
    source, target = (torch.tensor([[symbol]], device=device) for symbol in (EOS, BOS))
    model.eval()
    try:
        weights = model.source_weights(source, target)
    except ModelError as error:
        why = f"training.guided_alignment looks at the source, and {error.message}"
        raise UsageError(why) from None
    finally:
        model.train(mode)
    return {layer: layer_weights.size(1) for layer, layer_weights in sorted(weights.items())}
