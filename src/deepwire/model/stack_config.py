"""The settings of one stack: its depth, its widths and its four sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field

from deepwire.config.section import Section, UnusedSettings
from deepwire.model.aggregations.aggregation import AggregationSection
from deepwire.model.aggregations.last import LastConfig
from deepwire.model.connections.connection import ConnectionSection
from deepwire.model.connections.residual import PreNormConfig
from deepwire.model.embedding import PositionsConfig
from deepwire.model.fusions.fusion import FusionSection
from deepwire.model.fusions.top import TopConfig
from deepwire.model.mixers.per_layer import AnyMixer
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.recurrent_depth import RecurrenceConfig
from deepwire.model.stack_spec import Side, SocketSection, StackSpec, Sublayer
from deepwire.model.sublayer_config import SizeConfig


class StackConfig(Section):
    """One stack: its depth and its four sockets."""

    layers: int = Field(6, ge=1, le=10_000, description="number of layers")
    size: SizeConfig = Field(SizeConfig(), description="widths of this side, where they differ")
    positions: PositionsConfig | None = Field(None, description="of this side; model.positions without it")
    scale_embedding: bool | None = Field(
        None, description="of this side: multiply by the square root of d_model; embeddings.scale without it"
    )
    mixer: AnyMixer = Field(SelfAttentionConfig(), description="how positions read each other")
    connection: ConnectionSection = Field(PreNormConfig(), description="how sub-layers join the stream")
    aggregation: AggregationSection = Field(LastConfig(), description="what a layer reads of those below")
    fusion: FusionSection = Field(TopConfig(), description="which layer outputs leave the stack")
    recurrence: RecurrenceConfig | None = Field(
        None, description="encoder: layers in the middle run several times (recurrent depth)"
    )
    feed_forward: bool = Field(
        True, description="whether layers have feed-forward sub-layers; some connections never have any"
    )
    inner_feed_forward: bool = Field(
        False,
        description="decoder: one more feed-forward sub-layer, between mixer and cross-attention (DeltaLM, "
        "Ma et al. 2021; the GTrans paper's models on OPUS-100)",
    )

    def sublayers(self, side: Side, *, is_decoder_only: bool = False) -> tuple[Sublayer, ...]:
        """The sub-layers of each layer on this side; in a decoder-only model nothing reads an encoder."""
        replaced = self.mixer.replaces | self.connection.replaces
        if is_decoder_only or side == "encoder" or "cross" in replaced:
            replaced |= {"inner_feed_forward", "cross"}
        kinds: dict[Sublayer, bool] = {
            "mixer": True,
            "inner_feed_forward": self.inner_feed_forward,
            "cross": True,
            "feed_forward": self.feed_forward,
        }
        return tuple(kind for kind, wanted in kinds.items() if wanted and kind not in replaced)

    def sockets(self) -> Mapping[str, SocketSection]:
        """The four choices by the name of their socket."""
        return {
            "mixer": self.mixer,
            "connection": self.connection,
            "aggregation": self.aggregation,
            "fusion": self.fusion,
        }

    def has_norm(self, spec: StackSpec) -> bool:
        """Whether any part of such a stack has norms."""
        return any(socket.has_norm(spec) for socket in self.sockets().values())

    def fusion_spec(self, spec: StackSpec) -> StackSpec:
        """The spec of the fusion of this stack, with the width of the connection's result."""
        return replace(spec, dim=self.connection.result_width(spec))

    def check(self, spec: StackSpec) -> None:
        """Refuse what does not fit this stack, with a `ValueError`; nothing is built."""
        side = spec.side
        for name, socket in self.sockets().items():
            if side not in socket.sides:
                raise ValueError(f"{side}.{name}: {socket.type} does not work in the {side}")
        both = self.mixer.brings_cross_attention and self.connection.brings_cross_attention
        if both and side == "decoder":
            raise ValueError(
                f"decoder.mixer: {self.mixer.type} brings a cross-attention of its own, and so does "
                f"connection {self.connection.type}"
            )
        self.connection.check(spec)
        calls = self.connection.calls(spec)
        if self.inner_feed_forward and not any(call.kind == "inner_feed_forward" for call in calls):
            lacks = "needs a cross-attention after it"
            unfit = f"does not work with connection {self.connection.type}"
            raise ValueError(f"{side}.inner_feed_forward {unfit if 'cross' in spec.sublayers else lacks}")
        self.aggregation.check(spec)
        self.aggregation.check_ways(side, mixer=self.mixer.takes_ways, connection=self.connection.takes_ways)
        self.fusion.check(self.fusion_spec(spec))
        if self.recurrence is not None:
            self.recurrence.check(spec, self.mixer, self.connection, self.aggregation, self.fusion)
        widths = dict.fromkeys((call.width, call.gives) for call in calls if call.kind == "mixer")
        for told in (spec.of_mixer(*pair) for pair in widths):
            if told.mixer_width != told.dim and not self.mixer.reads_any_width:
                raise ValueError(
                    f"{side}.mixer: {self.mixer.type} reads vectors of width {told.dim} only, not "
                    f"{told.mixer_width} as this connection gives it"
                )
            if told.dim != spec.dim and not isinstance(self.aggregation, LastConfig):
                raise ValueError(
                    f"{side}.aggregation: {self.aggregation.type} combines vectors of width {spec.dim}, "
                    f"but with connection {self.connection.type} layers have {told.dim}; only last fits"
                )
            self.mixer.check_sublayer(told)
            self.mixer.check(told)

    def unused_settings_in(self, spec: StackSpec) -> UnusedSettings:
        """Settings of the sockets that change nothing in such a stack."""
        for name, socket in self.sockets().items():
            for key, reason in socket.unused_settings_in(spec):
                yield f"{name}.{key}", reason
