"""Depth-scaled initialisation: the deeper a layer, the smaller its weights begin.

Zhang et al. 2019 (Improving Deep Transformer with Depth-Scaled Initialization and Merged Attention).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from deepwire.model.embedding import TokenEmbedding
from deepwire.model.initializations.base import Initialization, glorot_bound, uniform, zero_bias
from deepwire.model.linear import Linear


class DepthScaledConfig(Initialization):
    """DS-Init: weights of layer l uniform in +-gamma alpha / sqrt(l), gamma = sqrt(6 / (fan_in + fan_out)).

    Layers count from 1 in each stack. Biases are 0, embeddings normal with d^-0.5. Queries, keys and values
    of self-attention are one matrix `[3 d, d]`, those of cross-attention three of `[d, d]`, as in the
    authors' code.
    """

    type: Literal["depth_scaled"] = "depth_scaled"
    alpha: float = Field(1.0, gt=0, le=1, description="factor of all bounds")
    form: Literal["paper", "released"] = Field(
        "paper",
        description="bounds fall with the square root of the depth (paper), or with its fourth root: the "
        "released code scales the variance",
    )

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Uniform by inputs, outputs and depth."""
        outputs = module.out_features
        if isinstance(module, Linear) and module.role == "cross_attention":
            outputs //= module.parts
        exponent = -0.5 if self.form == "paper" else -0.25
        uniform(module.weight, self.alpha * glorot_bound(module.in_features, outputs) * layer**exponent)
        zero_bias(module)

    def embedding(self, module: TokenEmbedding) -> None:
        """Normal with d^-0.5."""
        nn.init.normal_(module.weight, std=module.weight.size(1) ** -0.5)
