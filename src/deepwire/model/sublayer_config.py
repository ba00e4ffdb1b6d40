"""Settings of the sub-layers of both stacks: norms, heads, activation, biases, and their sizes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deepwire.config.counts import MAX_SIZE, Count
from deepwire.config.section import Section
from deepwire.model.layers import FeedForwardActivation, NormKind


class BiasConfig(Section):
    """Which linear maps have a bias."""

    attention: bool = Field(False, description="projections of attention (fairseq: true, Neutron: false)")
    feed_forward: Literal["both", "first", "none"] = Field(
        "first", description="layers of feed-forward sub-layers"
    )
    output: bool = Field(True, description="output projection (Neutron: true, fairseq: false)")


class SizeConfig(Section):
    """Measures of one side where they are not those of the model; what is not given is as in the model."""

    d_model: Count | None = Field(
        None, ge=1, le=MAX_SIZE, description="width of the stream and of the embedding"
    )
    heads: int | None = Field(None, ge=1, le=MAX_SIZE, description="attention heads; they divide d_model")
    feed_forward: Count | None = Field(
        None, ge=1, le=MAX_SIZE, description="inner width of feed-forward and hidden parts"
    )
    key_value_heads: int | None = Field(
        None, ge=1, le=MAX_SIZE, description="heads of keys and values; they divide heads"
    )


class SublayerConfig(Section):
    """Settings of the sub-layers of both stacks."""

    key_value_heads: int | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="heads of keys and values in all attentions, each for several heads of queries (grouped-"
        "query attention); they divide heads; as many without it",
    )
    qk_norm: bool = Field(
        False, description="normalise queries and keys of each head in all attentions, before their product"
    )
    activation: FeedForwardActivation = Field(
        "relu",
        description="in feed-forward sub-layers. glu halves the stated inner width; swiglu and geglu have a "
        "third matrix of that width instead",
    )
    bias: BiasConfig = Field(BiasConfig(), description="which linear maps have a bias")
    norm: NormKind = Field(
        "layer",
        description="layer norms or RMS norms; those of recurrent cells and gates are layer norms always",
    )
    norm_eps: float = Field(1e-6, gt=0, le=0.1, description="epsilon of norms (Neutron 1e-6, fairseq 1e-5)")
    inner_norm: bool = Field(
        False,
        description="one more norm inside each self-attention and feed-forward sub-layer, in front of its "
        "last matrix (Sub-LN, with connection pre_norm)",
    )

    def key_value_heads_of(self, size: SizeConfig) -> int | None:
        """Heads of keys and values of a side with sizes of its own."""
        return self.key_value_heads if size.key_value_heads is None else size.key_value_heads

    def check_heads(self, size: SizeConfig, heads: int, where: str) -> None:
        """Refuse heads of keys that do not serve so many heads of queries, with a `ValueError`."""
        key_heads = self.key_value_heads_of(size) or heads
        if heads % key_heads:
            raise ValueError(
                f"{where}key_value_heads: {key_heads} heads of keys and values do not divide the {heads} "
                "heads of queries"
            )
