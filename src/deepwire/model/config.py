"""The `model` section of a run file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from deepwire.config.base import Section, WithoutEffect
from deepwire.config.quantities import WIDEST, Count
from deepwire.model.activations import ActivationName
from deepwire.model.aggregations import AggregationConfig
from deepwire.model.aggregations.last import LastConfig
from deepwire.model.connections import ConnectionConfig
from deepwire.model.connections.connection import Sublayer
from deepwire.model.connections.residual import PreNormConfig
from deepwire.model.context import DropoutConfig, Side, StackContext
from deepwire.model.embedding import EmbeddingConfig
from deepwire.model.fusions import FusionConfig
from deepwire.model.fusions.groups import GroupsConfig
from deepwire.model.fusions.top import TopConfig
from deepwire.model.initializations import InitializationConfig
from deepwire.model.initializations.lipschitz import LipschitzConfig
from deepwire.model.languages import LanguagesConfig, TargetLanguages
from deepwire.model.mixers import MixerConfig
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.positions import PositionsConfig, SinusoidalConfig

_SIDES: tuple[Side, Side] = ("encoder", "decoder")


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
        None, ge=1, le=WIDEST, description="width of the stream and of the embedding"
    )
    heads: int | None = Field(None, ge=1, le=WIDEST, description="attention heads; they divide d_model")
    feed_forward: Count | None = Field(
        None, ge=1, le=WIDEST, description="inner width of feed-forward and hidden parts"
    )


class StackConfig(Section):
    """One stack: its depth and its four sockets."""

    layers: int = Field(6, ge=1, le=10_000, description="number of layers")
    size: SizeConfig = Field(SizeConfig(), description="widths of this side, where they differ")
    positions: PositionsConfig | None = Field(None, description="of this side; model.positions without it")
    scale_embedding: bool | None = Field(
        None, description="of this side: multiply by the square root of d_model; embeddings.scale without it"
    )
    mixer: MixerConfig = SelfAttentionConfig()
    connection: ConnectionConfig = PreNormConfig()
    aggregation: AggregationConfig = LastConfig()
    fusion: FusionConfig = TopConfig()
    feed_forward: bool = Field(
        True, description="whether layers have feed-forward sub-layers; some connections never have any"
    )
    inner_feed_forward: bool = Field(
        False,
        description="decoder: one more feed-forward sub-layer, between mixer and cross-attention (DeltaLM, "
        "Ma et al. 2021; the GTrans paper's models on OPUS-100)",
    )

    def sublayers(self, side: Side) -> tuple[Sublayer, ...]:
        """What each layer consists of on this side, as its connection is told."""
        kinds: list[Sublayer] = ["mixer"]
        if side == "decoder" and not self.mixer.absorbs_cross_attention:
            inner = self.inner_feed_forward and self.connection.has_feed_forward
            kinds += ["inner_feed_forward", "cross"] if inner else ["cross"]
        if self.feed_forward and self.connection.has_feed_forward:
            kinds.append("feed_forward")
        return tuple(kinds)

    def without_effect_beside(self, other: StackConfig, side: Side) -> WithoutEffect:
        """Settings of the sockets that change nothing on this side, or with such another stack."""
        sockets = {
            "mixer": self.mixer.without_effect_in(side),
            "connection": self.connection.without_effect_around(self.sublayers(side), other.connection),
            "fusion": self.fusion.without_effect_in(side),
        }
        for socket, idle in sockets.items():
            for key, reason in idle:
                yield f"{socket}.{key}", reason


class ModelConfig(Section):
    """An encoder-decoder model."""

    d_model: Count = Field(512, ge=1, le=WIDEST, description="width of the stream")
    heads: int = Field(8, ge=1, le=WIDEST, description="attention heads; they divide d_model")
    feed_forward: Count = Field(
        2048, ge=1, le=WIDEST, description="inner width of feed-forward and two-layer hidden parts"
    )
    activation: ActivationName = Field("relu", description="in feed-forward sub-layers")
    dropout: DropoutConfig = Field(DropoutConfig(), description="one number, or one for each place")
    bias: BiasConfig = BiasConfig()
    norm_eps: float = Field(
        1e-6, gt=0, le=0.1, description="epsilon of layer norms (Neutron 1e-6, fairseq 1e-5)"
    )
    positions: PositionsConfig = SinusoidalConfig()
    max_length: Count = Field(
        1024, ge=1, le=WIDEST, description="rows of learned position tables; others know no limit"
    )
    embeddings: EmbeddingConfig = EmbeddingConfig()
    encoder: StackConfig = StackConfig()
    decoder: StackConfig = StackConfig()
    initialization: InitializationConfig = LipschitzConfig()
    languages: LanguagesConfig = LanguagesConfig()

    @model_validator(mode="after")
    def _fits(self) -> ModelConfig:
        for side in _SIDES:
            d_model, heads, feed_forward = self.size(side)
            where = f"{side}: " if self.stack(side).size != SizeConfig() else ""
            if d_model % heads:
                raise ValueError(f"{where}heads: {heads} heads do not divide d_model {d_model}")
            if d_model % 2:
                raise ValueError(f"{where}d_model must be even, not {d_model}")
            if self.activation == "glu" and feed_forward % 2:
                raise ValueError(f"{where}feed_forward must be even with GLU, not {feed_forward}")
        if self.size("encoder")[0] != self.size("decoder")[0] and self.embeddings.tie in ("all", "inputs"):
            raise ValueError(
                f"embeddings.tie: {self.embeddings.tie} needs one width, but encoder and decoder have "
                f"{self.size('encoder')[0]} and {self.size('decoder')[0]}; tie output or none"
            )
        if self.languages.output_bias and not self.bias.output:
            raise ValueError("languages.output_bias: each language's own bias needs bias.output: true")
        for side in _SIDES:
            fusion = self.stack(side).fusion
            if self.languages.fusion in (side, "both") and not isinstance(fusion, GroupsConfig):
                raise ValueError(
                    f"languages.fusion: {self.languages.fusion}: {side}.fusion is {fusion.type}, and only "
                    "groups have weights of each language"
                )
        self._check_sockets()
        return self

    def _check_sockets(self) -> None:
        """Build every socket once, without memory, so that what does not fit is refused with the file."""
        from deepwire.model.build import build_stacks
        from deepwire.model.meta_init import meta_init

        def parameters(languages: TargetLanguages | None) -> int:
            stacks = build_stacks(self, self.contexts(languages))
            return sum(parameter.numel() for stack in stacks for parameter in stack.parameters())

        with meta_init():
            plain = parameters(None)
            if self.languages.norm and parameters(TargetLanguages(2)) == plain:
                raise ValueError("languages.norm: neither encoder nor decoder has a norm with these settings")

    def without_effect(self) -> WithoutEffect:
        """What no part of the model asks for."""
        stacks = {side: self.stack(side) for side in _SIDES}
        for side, stack in stacks.items():
            other = stacks["decoder" if side == "encoder" else "encoder"]
            for key, reason in stack.without_effect_beside(other, side):
                yield f"{side}.{key}", reason
        if not any(
            stack.mixer.has_feed_forward or {"feed_forward", "inner_feed_forward"} & {*stack.sublayers(side)}
            for side, stack in stacks.items()
        ):
            for key in ("activation", "bias.feed_forward"):
                yield key, "no layer has a feed-forward sub-layer"
        if not any((stack.positions or self.positions).has_rows for stack in stacks.values()):
            yield "max_length", "only learned positions have so many rows; others know no limit"

    def has_dropout(self) -> bool:
        """Whether two passes of one batch differ in training."""

        def drops(settings: Mapping[str, object], within: bool) -> bool:
            return any(
                drops(value, within or key == "dropout")
                if isinstance(value, Mapping)
                else (within or key == "dropout") and bool(value)
                for key, value in settings.items()
            )

        return drops(self.model_dump(), within=False)

    def stack(self, side: Side) -> StackConfig:
        """The stack of one side."""
        return self.encoder if side == "encoder" else self.decoder

    def size(self, side: Side) -> tuple[int, int, int]:
        """d_model, heads and feed_forward of one side."""
        own = self.stack(side).size
        return own.d_model or self.d_model, own.heads or self.heads, own.feed_forward or self.feed_forward

    def contexts(self, languages: TargetLanguages | None = None) -> dict[Side, StackContext]:
        """What the sockets of both stacks are told; the two share one pool of shared modules.

        `languages` are those that have parameters of their own, in a model of several.
        """
        depth = {side: self.stack(side).layers for side in _SIDES}
        sizes = {side: self.size(side) for side in _SIDES}
        encoder, decoder = (
            StackContext(
                side=side,
                dim=sizes[side][0],
                memory_width=sizes["encoder"][0],
                layers=depth[side],
                other_layers=depth["decoder" if side == "encoder" else "encoder"],
                heads=sizes[side][1],
                feed_forward=sizes[side][2],
                activation=self.activation,
                dropout=self.dropout,
                norm_eps=self.norm_eps,
                attention_bias=self.bias.attention,
                feed_forward_bias=self.bias.feed_forward,
                languages=languages if self.languages.norm else None,
                fusion_languages=languages if self.languages.fusion in (side, "both") else None,
            )
            for side in _SIDES
        )
        return {"encoder": encoder, "decoder": replace(decoder, shared=encoder.shared)}
