"""DLCL and dense connections: every layer reads a linear combination of all layers below, learned or fixed.

Wang et al. 2019 (Learning Deep Transformer Models for Machine Translation), Eq. 5 to 9.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from deepwire.model.aggregations.aggregation import Aggregation, AggregationSection, History
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, of_layer_inputs
from deepwire.model.layers import NoNorm
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import Dropout
from deepwire.ops.weighted_sum import weighted_sum

HistoryNorm = Literal["auto", "before", "after", "none"]
EmbeddingNorm = Literal["none", "once", "twice"]
Window = Annotated[int | None, Field(ge=1, description="only the last so many outputs are combined")]
CombinationDropout = Annotated[float, Field(ge=0, lt=1, description="dropout of the combination")]


class DLCLConfig(AggregationSection):
    """Dynamic linear combination of layers, with the ablations of the paper's Table 6."""

    type: Literal["dlcl"] = "dlcl"
    initial: Literal["average", "one"] = Field("average", description="initial weights: 1/N each, or all 1")
    learned: bool = Field(True, description="false keeps the initial weights: the dense residual network")
    norm: HistoryNorm = Field(
        "auto",
        description="layer norm of each stored output (before, Eq. 8) or of the combination (after, Eq. 9); "
        "auto: after for post_norm, before for the others",
    )
    embedding_norm: EmbeddingNorm = Field(
        "once",
        description="norm of the embedding's entry: once (the equations), none (the released code), "
        "twice (the released code's inner switch in post-norm)",
    )
    weights: Literal["scalar", "vector"] | int = Field(
        "scalar",
        description="one weight per layer pair, one per feature, or n; feature c takes number c mod n",
    )
    softmax: bool = Field(False, description="weights of a row are a softmax over its entries")
    window: Window = None
    window_form: Literal["enforced", "initial"] = Field(
        "enforced",
        description="initial: entries outside start at 0 but are learned, unless softmax (the released code)",
    )
    dropout: CombinationDropout = 0.0

    @model_validator(mode="after")
    def _fits(self) -> DLCLConfig:
        if isinstance(self.weights, int) and self.weights < 1:
            raise ValueError(f"weights must be scalar, vector or a number of at least 1, not {self.weights}")
        return self

    def check(self, spec: StackSpec) -> None:
        """Weights that divide the features."""
        if spec.dim % self._count(spec):
            raise ValueError(f"{self.weights} weights do not divide the width {spec.dim}")

    def has_norm(self, spec: StackSpec) -> bool:
        """Unless left out."""
        return self.norm != "none"

    def build(self, spec: StackSpec) -> Aggregation:
        """The combination of a whole stack."""
        return DLCL(self, spec, self._count(spec))

    def _count(self, spec: StackSpec) -> int:
        if isinstance(self.weights, int):
            return self.weights
        return 1 if self.weights == "scalar" else spec.dim


class DLCL(Aggregation):
    """x_{l+1} = sum_k W[l, k] LN_k(y_k) (pre-norm, Eq. 8), or LN_l(sum_k W[l, k] y_k) (post-norm, Eq. 9).

    `mix` is `[L + 1, L + 1, n]`; row l combines y_0 to y_l, and only the lower triangle is used. The last row
    gives the stack's output.
    """

    def __init__(self, config: DLCLConfig, spec: StackSpec, weights: int) -> None:
        super().__init__()
        self.norm = config.norm
        if self.norm == "auto":
            self.norm = "after" if spec.norm_style == "output" else "before"
        self.softmax = config.softmax
        self.embedding_norm = config.embedding_norm
        self.repeats = spec.dim // weights
        outputs = spec.layers + 1
        # In the released code the window keeps the softmax from the other entries, and nothing else.
        enforced = config.softmax or config.window_form == "enforced"
        self.window = config.window if config.window and enforced else outputs
        # Plain numbers: comparing tensors of a model that is only counted would load the compiler.
        reach = config.window or outputs
        rows = [[float(row - reach < column <= row) for column in range(outputs)] for row in range(outputs)]
        if config.initial == "average":
            rows = [[weight / sum(row) for weight in row] for row in rows]
        initial = torch.tensor(rows)
        self.mix: Tensor
        mix = initial.unsqueeze(-1).repeat(1, 1, weights)
        if config.learned:
            self.mix = nn.Parameter(mix)
        else:
            self.register_buffer("mix", mix, persistent=False)
        no_norm = self.norm == "none"
        skips = 0 if config.embedding_norm != "none" else 1
        self.norms = nn.ModuleList(
            NoNorm() if no_norm or entry < skips else spec.norm() for entry in range(outputs)
        )
        self.dropout = Dropout(config.dropout)

    def start(self, x: Tensor, context: Context) -> tuple[History, Tensor]:
        """Store the embedding; layer 1 reads its weighted (and normalised) form."""
        stores = self.norm == "before" or self.embedding_norm == "twice"
        history = (self.norms[0](x, context) if stores else x,)
        return history, self._combine(history, context)

    def close(self, history: History, output: Tensor, layer: int, context: Context) -> tuple[History, Tensor]:
        """Store the output of a layer; the next one reads the combination."""
        stored = self.norms[layer + 1](output, context) if self.norm == "before" else output
        history = (*history, stored)
        return history, self._combine(history, context)

    def weights(self) -> Tensor:
        """The weights that are used, `[L + 1, L + 1, n]`; zero above the diagonal and outside the window."""
        size = self.mix.size(0)
        row = torch.arange(size, device=self.mix.device).unsqueeze(1)
        column = torch.arange(size, device=self.mix.device)
        hidden = ((column > row) | (column <= row - self.window)).unsqueeze(-1)
        if self.softmax:
            return self.mix.masked_fill(hidden, float("-inf")).softmax(1)
        return self.mix.masked_fill(hidden, 0.0)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The matrix of Fig. 5: x_1 to x_{L+1} in the rows, y_0 to y_L in the columns."""
        size = self.mix.size(0)
        apart = torch.ones(size, size, dtype=torch.bool, device=self.mix.device)
        apart = ~apart.tril().triu(1 - self.window)
        return (
            of_layer_inputs("dlcl", self.weights().detach().masked_fill(apart.unsqueeze(-1), float("nan"))),
        )

    def _combine(self, history: History, context: Context) -> Tensor:
        row = len(history) - 1
        first = max(0, row + 1 - self.window)
        weights = self.mix[row, first : row + 1]
        if self.softmax:
            weights = weights.softmax(0)
        # Feature c takes weight c mod n, so the n weights follow each other along the features.
        weights = weights.to(history[0].dtype)
        if weights.size(-1) > 1:
            weights = weights.repeat(1, self.repeats)
        combined = weighted_sum(weights.unbind(0), history[first:])
        if self.norm == "after":
            combined = self.norms[row](combined, context)
        return self.dropout(combined)


class DenseConfig(AggregationSection):
    """Dense residual connections, with the norms of DLCL: nothing is learned but these norms.

    Wang et al. 2019, Figure 2(b), after Britz et al. 2017.
    """

    type: Literal["dense"] = "dense"
    weights: Literal["average", "sum"] = Field(
        "average", description="average (1/N each; the paper's Table 6: fix 1/N) or sum (fix 1)"
    )
    norm: HistoryNorm = Field(
        "auto",
        description="layer norm of each stored output (before) or of the combination (after); auto: after "
        "for post_norm, before for the others",
    )
    embedding_norm: EmbeddingNorm = Field(
        "once", description="norm of the embedding's entry, as of dlcl; the released code: none"
    )
    window: Window = None
    dropout: CombinationDropout = 0.0

    def has_norm(self, spec: StackSpec) -> bool:
        """Unless left out."""
        return self.norm != "none"

    def build(self, spec: StackSpec) -> Aggregation:
        """The combination of a whole stack."""
        return DLCLConfig(
            initial="one" if self.weights == "sum" else "average",
            learned=False,
            norm=self.norm,
            embedding_norm=self.embedding_norm,
            window=self.window,
            dropout=self.dropout,
        ).build(spec)
