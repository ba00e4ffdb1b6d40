"""Parametrisations: how multipliers, initial values and learning rates follow width and depth of a model.

A model whose settings were tuned is the base; a wider or deeper one learns with the same settings. CompleteP:
Dey et al. 2025 (Don't Be Lazy: CompleteP Enables Compute-Efficient Deep Transformers), on the maximal update
parametrisation (muP) of Yang et al. 2022 (Tensor Programs V).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from deepwire.config.counts import MAX_SIZE, Count
from deepwire.config.section import Section


class BaseMeasures(Section):
    """The measures of the base model; what is not given is as in this model."""

    d_model: Count | None = Field(None, ge=2, le=MAX_SIZE, description="width of the stream")
    heads: int | None = Field(None, ge=1, le=MAX_SIZE, description="attention heads; they divide d_model")
    encoder_layers: int | None = Field(None, ge=1, le=10_000, description="layers of the encoder")
    decoder_layers: int | None = Field(None, ge=1, le=10_000, description="layers of the decoder")

    @model_validator(mode="after")
    def _fits(self) -> BaseMeasures:
        if all(measure is None for measure in (self.d_model, self.encoder_layers, self.decoder_layers)):
            raise ValueError("says nothing: give d_model, encoder_layers or decoder_layers of the base model")
        if (self.d_model is None) != (self.heads is None):
            raise ValueError("d_model and heads go together: they give the width of a head")
        if self.d_model is not None and self.heads is not None and self.d_model % self.heads:
            raise ValueError(f"{self.heads} heads do not divide d_model {self.d_model}")
        return self


class CompletePConfig(Section):
    """CompleteP: the settings of a base model hold for wider and deeper ones (Dey et al. 2025, Table 1).

    Sizes that only the width changes are those of muP; without `encoder_layers` and `decoder_layers` of the
    base it is muP. Derived for pre-norm stacks.
    """

    type: Literal["complete_p"] = "complete_p"
    alpha: float = Field(
        1.0, ge=0.5, le=1, description="what sub-layers add is divided by depth^alpha; 0.5 is Depth-muP"
    )
    base: BaseMeasures = Field(description="measures of the model whose settings were tuned")

    @model_validator(mode="before")
    @classmethod
    def _base_is_named(cls, data: object) -> object:
        if isinstance(data, dict) and "base" not in data:
            raise ValueError("name the base model: base: {d_model: 256, heads: 4, encoder_layers: 6, ...}")
        return data

    def scaling(self, d_model: int, heads: int, layers: int, base_layers: int | None) -> Scaling:
        """The factors of one stack with these measures."""
        base_width = self.base.d_model or d_model
        base_head = base_width / (self.base.heads or heads)
        return Scaling(
            width=d_model / base_width,
            depth=layers / (base_layers or layers),
            head=(d_model / heads) / base_head,
            alpha=self.alpha,
        )


class UpdateScale(NamedTuple):
    """Factors of the optimizer's settings for a parameter.

    Attributes:
        rate: Of the learning rate.
        decay: Of the weight decay, which the rate multiplies too.
        eps: Of Adam's epsilon.
    """

    rate: float = 1.0
    decay: float = 1.0
    eps: float = 1.0


class Scaling(NamedTuple):
    """Factors that follow from the measures of a stack relative to those of its base.

    Attributes:
        width: m_d, the width of the stream over that of the base.
        depth: m_L, layers over those of the base.
        head: Width of an attention head over that of the base.
        alpha: The exponent of the depth.
    """

    width: float = 1.0
    depth: float = 1.0
    head: float = 1.0
    alpha: float = 1.0

    @property
    def branch(self) -> float:
        """Factor of a sub-layer's output before it is added to the stream: m_L^-alpha."""
        return float(self.depth**-self.alpha)

    @property
    def query(self) -> float:
        """Factor of queries: attention scores then fall with 1/h, not with 1/sqrt(h)."""
        return float(self.head**-0.5)

    @property
    def output(self) -> float:
        """Factor of logits, but for their bias: 1/m_d."""
        return 1 / self.width

    @property
    def outside(self) -> UpdateScale:
        """Scales of embeddings."""
        return UpdateScale(eps=self._eps)

    @property
    def vectors_outside(self) -> UpdateScale:
        """Scales of final norms and biases outside of layers."""
        return UpdateScale(decay=0.0, eps=self._eps)

    @property
    def matrices(self) -> UpdateScale:
        """Scales of linear maps inside the stack; rate times decay does not depend on the width."""
        return UpdateScale(self._deep / self.width, self.width, self._eps)

    @property
    def vectors(self) -> UpdateScale:
        """Scales of norms and biases inside layers."""
        return UpdateScale(self._deep, 0.0, self._eps)

    @property
    def _deep(self) -> float:
        return float(self.depth ** (self.alpha - 1))

    @property
    def _eps(self) -> float:
        return self.branch / self.width


UNSCALED = Scaling()
"""A stack without a parametrisation."""
