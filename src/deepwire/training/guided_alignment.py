"""Guided alignment: one head of the cross-attention learns which words belong together.

Chen et al. 2016 (Guided Alignment Training for Topic-Aware Neural Machine Translation); Garg et al. 2019
(Jointly Learning to Align and Translate with Transformer Models), whose choice of layer and head is the
default. The loss is L = CE + weight * A, where A sums over the target subwords t that have links

    - sum_s (g_ts / sum_s' g_ts') log a_ts,

g_ts is 1 where source subword s and t belong together, else 0, and a_ts is what the head gives to s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from deepwire.config.counts import Positive
from deepwire.config.section import NumberSection
from deepwire.data.vocabulary import BOS, EOS
from deepwire.errors import ModelError, UsageError
from deepwire.model.cross_attention import CrossAttentionRecorder
from deepwire.model.translation_model import TranslationModel
from deepwire.training.device_batches import DeviceBatch
from deepwire.training.extras import Extra

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

    Args:
        config: Which head, and how.
        model: The model that learns.

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
