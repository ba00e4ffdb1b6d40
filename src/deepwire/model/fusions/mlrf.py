"""MLRF: all layers of a stack are fused into one result by a learned function. A RECONSTRUCTION.

Wang et al. 2018 (Multi-layer Representation Fusion for Neural Machine Translation) released no code, and
these equations are not theirs: they follow what later papers say of the three fusion functions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.counts import MAX_SIZE, Count
from deepwire.model.context import Context
from deepwire.model.fusions.fusion import Fusion, FusionSection
from deepwire.model.introspection import DepthWeights, GateProbe, Place, layer_names, single
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import Dropout
from deepwire.ops.weighted_sum import weighted_sum

Form = Literal["linear", "feed_forward", "attention"]


class MLRFConfig(FusionSection):
    """Multi-layer representation fusion; a reconstruction, not the authors' code or equations."""

    type: Literal["mlrf"] = "mlrf"
    form: Form = Field(
        "attention",
        description="linear (a learned share of each layer), feed_forward (over all layers side by side) or "
        "attention (each position attends to its layers); all three are reconstructions",
    )
    hidden: Count | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="inner width of feed_forward (model.feed_forward without it) or attention (d_model)",
    )
    hops: int | None = Field(
        None, ge=1, description="attention: number of attention weights a layer, default 4"
    )

    @model_validator(mode="after")
    def _fits(self) -> MLRFConfig:
        if self.form == "linear" and self.hidden is not None:
            raise ValueError("hidden: form linear has no inner width; leave it out")
        if self.form != "attention" and self.hops is not None:
            raise ValueError(f"hops: form {self.form} has none; leave it out, or set form: attention")
        return self

    def build(self, spec: StackSpec) -> Fusion:
        """The fusion of a whole stack."""
        return _FORMS[self.form](self, spec)


class LayerFusion(Fusion):
    """o = LN(f(h_0, ..., h_L)): h_0 is the embedding, each h_i has the connection's final norm if any."""

    def __init__(self, config: MLRFConfig, spec: StackSpec) -> None:
        super().__init__()
        self.keeps = frozenset(range(spec.layers + 1))
        self.norm = spec.norm()

    def forward(
        self, kept: Sequence[Tensor], normalise: Callable[[Tensor], Tensor], context: Context
    ) -> tuple[Tensor, ...]:
        """One result, `[B, T, d]`."""
        return (self.norm(self.fuse([normalise(layer) for layer in kept]), context),)

    @abstractmethod
    def fuse(self, layers: Sequence[Tensor]) -> Tensor:
        """One tensor `[B, T, d]` of L + 1 tensors of that shape."""


class LinearFusion(LayerFusion):
    """f = sum_i softmax(w)_i h_i; w begins at zero."""

    def __init__(self, config: MLRFConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        self.weights = nn.Parameter(torch.zeros(spec.layers + 1))

    def fuse(self, layers: Sequence[Tensor]) -> Tensor:
        """The weighted sum."""
        return weighted_sum(self.weights.softmax(0).to(layers[0].dtype).unbind(), layers)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The shares of the layers; they sum to 1."""
        return (_weights("Shares of layers in the result", self.weights.softmax(0), "share"),)


class FeedForwardFusion(LayerFusion):
    """f = W_2 drop(relu(W_1 [h_0; ...; h_L] + b_1)) + b_2."""

    def __init__(self, config: MLRFConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        hidden = config.hidden or spec.feed_forward
        self.input = nn.Linear((spec.layers + 1) * spec.dim, hidden)
        self.output = nn.Linear(hidden, spec.dim)
        self.dropout = Dropout(spec.dropout.activation)

    def fuse(self, layers: Sequence[Tensor]) -> Tensor:
        """Two linear maps over all layers side by side."""
        return self.output(self.dropout(functional.relu(self.input(torch.cat(tuple(layers), -1)))))

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """Frobenius norm of the part of W_1 that reads each layer."""
        parts = self.input.weight.view(len(self.input.weight), -1, self.output.out_features)
        return (_weights("Norm of the map from each layer into the fusion", parts.norm(dim=(0, 2)), "norm"),)


class AttentionFusion(LayerFusion):
    """f = W_o [sum_i A_1i h_i; ...; sum_i A_ni h_i] + b_o with n hops.

    A = softmax over i of W_2 drop(tanh(W_1 (h_i + e_i))); e_i is a learned embedding of layer i. Every
    position weighs its own layers.
    """

    def __init__(self, config: MLRFConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        hidden, hops = config.hidden or spec.dim, config.hops or 4
        self.layer_embedding = nn.Parameter(torch.empty(spec.layers + 1, spec.dim))
        nn.init.normal_(self.layer_embedding, std=spec.dim**-0.5)
        self.input = nn.Linear(spec.dim, hidden, bias=False)
        self.score = nn.Linear(hidden, hops, bias=False)
        self.output = nn.Linear(hops * spec.dim, spec.dim)
        self.dropout = Dropout(spec.dropout.activation)

    def fuse(self, layers: Sequence[Tensor]) -> Tensor:
        """Attention over the layers of each position."""
        stacked = torch.stack(tuple(layers), -2)  # [B, T, L + 1, d]
        # W_1 (h + e) = W_1 h + W_1 e, and the second term is the same at every position.
        hidden = torch.tanh(self.input(stacked) + self.input(self.layer_embedding))
        weights = self.score(self.dropout(hidden)).softmax(-2)  # [B, T, L + 1, hops]
        seen = weights.transpose(-1, -2).to(stacked.dtype) @ stacked
        return self.output(seen.flatten(-2))

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """The attention weights A of the layers, of every position and hop."""
        names = layer_names(len(self.layer_embedding) - 1, embedding=True)

        def read(_inputs: tuple[Tensor, ...], output: object) -> Mapping[str, Tensor]:
            scores = cast("Tensor", output)  # [B, T, L + 1, hops]
            return dict(zip(names, scores.softmax(-2).unbind(-2), strict=True))

        place = Place(0, "fusion")
        return (GateProbe("attention over layers", self.score, (place,), read, {}, shares_of=_LAYERS),)


def _weights(title: str, values: Tensor, value: str) -> DepthWeights:
    names = layer_names(len(values) - 1, embedding=True)
    return single("mlrf", title, values, names, _LAYERS, value)


_LAYERS = "output of layer; 0: embedding"
_FORMS: Mapping[Form, type[LayerFusion]] = {
    "linear": LinearFusion,
    "feed_forward": FeedForwardFusion,
    "attention": AttentionFusion,
}
