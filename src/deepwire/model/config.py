"""The `model` section of a run file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from deepwire.config.choice import TRUSTED, by_name
from deepwire.config.counts import MAX_SIZE, Count
from deepwire.config.section import Section, UnusedSettings
from deepwire.model.aggregations.aggregation import AggregationSection
from deepwire.model.aggregations.last import LastConfig
from deepwire.model.connections.connection import ConnectionSection
from deepwire.model.connections.residual import PreNormConfig
from deepwire.model.embedding import EmbeddingConfig, PositionsConfig, RotaryConfig, SinusoidalConfig
from deepwire.model.fusions.fusion import FusionSection
from deepwire.model.fusions.groups import GroupsConfig
from deepwire.model.fusions.top import TopConfig
from deepwire.model.initialization import DepthScaledConfig, Initialization, LipschitzConfig, XavierConfig
from deepwire.model.languages import LanguagesConfig
from deepwire.model.layers import FeedForwardActivation, NormKind
from deepwire.model.mixers.mixed_attention import MixedAttentionConfig
from deepwire.model.mixers.per_layer import AnyMixer
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.parametrization import UNSCALED, CompletePConfig, Scaling
from deepwire.model.recurrent_depth import RecurrenceConfig
from deepwire.model.stack_spec import (
    SIDES,
    DropoutConfig,
    SharedModules,
    Side,
    SocketSection,
    StackSpec,
    Sublayer,
)


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


Architecture = Literal["encoder_decoder", "decoder_only"]


def _initialization_that_learns_best(given: Mapping[str, object]) -> Initialization:
    """The initialization of a model whose settings name none; measured in docs/reports/measurements.md.

    Norms after the sum bring small embeddings to size at once, and small ones learn faster. Where the
    embedding goes up the stack as it is, the words would be a whisper beside the positions. There the sum of
    many sub-layers would drown it too, so the matrices of later layers begin smaller. Without norms, other
    parameters begin where they do that (ReZero's are 0), and CompleteP's multipliers follow the depth. A
    connection whose paper has an initialisation of its own brings it along, if both stacks have it.
    """
    sides = ("decoder",) if given.get("architecture") == "decoder_only" else SIDES
    stacks = [stack for side in sides if isinstance(stack := given.get(side), StackConfig)]
    styles = {stack.connection.norm_style for stack in stacks}
    own = {stack.connection.initialization for stack in stacks}
    parametrized = given.get("parametrization") is not None
    if not parametrized and len(own) == 1 and (name := own.pop()) is not None:
        return Initialization.model_validate(name, context=TRUSTED)
    if styles == {"output"}:
        return LipschitzConfig()
    if "none" in styles or parametrized:
        return XavierConfig()
    return DepthScaledConfig()


class ModelConfig(SublayerConfig):
    """A model of two stacks, or of a decoder alone."""

    architecture: Architecture = Field(
        "encoder_decoder",
        description="encoder_decoder, or decoder_only: one stack reads the source and then the target",
    )
    source_loss: bool = Field(
        False, description="decoder_only: training adds the loss of each word of the source but the first"
    )
    d_model: Count = Field(512, ge=1, le=MAX_SIZE, description="width of the stream")
    heads: int = Field(8, ge=1, le=MAX_SIZE, description="attention heads; they divide d_model")
    feed_forward: Count = Field(
        2048, ge=1, le=MAX_SIZE, description="inner width of feed-forward and two-layer hidden parts"
    )
    dropout: DropoutConfig = Field(DropoutConfig(), description="one number, or one for each place")
    positions: PositionsConfig = Field(SinusoidalConfig(), description="how positions are marked")
    max_length: Count = Field(
        1024, ge=1, le=MAX_SIZE, description="rows of learned position tables; others know no limit"
    )
    embeddings: EmbeddingConfig = Field(EmbeddingConfig(), description="embedding and output matrices")
    encoder: StackConfig = Field(StackConfig(), description="layers and sockets of the encoder")
    decoder: StackConfig = Field(StackConfig(), description="layers and sockets of the decoder")
    share_layers: bool = Field(
        False,
        description="layer i of the decoder has the parameters of layer i of the encoder (He et al. 2018); "
        "with decoder.mixer: mixed_attention",
    )
    parametrization: Annotated[CompletePConfig, by_name] | None = Field(
        None, description="how multipliers and learning rates follow width and depth: complete_p"
    )
    initialization: Initialization = Field(
        default_factory=lambda given: _initialization_that_learns_best(given),
        description="how parameters begin; without it that of the connections' paper, where both stacks have "
        "the same (deepnorm, b2t), "
        "lipschitz where both stacks have their norms after the sum (post_norm and its relatives), xavier "
        "where a stack has none or with complete_p, and depth_scaled elsewhere",
    )
    languages: LanguagesConfig = Field(LanguagesConfig(), description="parameters of each target language")

    @model_validator(mode="after")
    def _fits(self) -> ModelConfig:
        if self.is_decoder_only:
            self._check_decoder_only()
        for side in self.sides:
            d_model, heads, feed_forward = self.size(side)
            where = f"{side}: " if self.stack(side).size != SizeConfig() else ""
            if d_model % heads:
                raise ValueError(f"{where}heads: {heads} heads do not divide d_model {d_model}")
            if d_model % 2:
                raise ValueError(f"{where}d_model must be even, not {d_model}")
            if self.activation == "glu" and feed_forward % 2:
                raise ValueError(f"{where}feed_forward must be even with GLU, not {feed_forward}")
            key_heads = self.stack(side).size.key_value_heads or self.key_value_heads or heads
            if heads % key_heads:
                raise ValueError(
                    f"{where}key_value_heads: {key_heads} heads of keys and values do not divide the {heads} "
                    "heads of queries"
                )
        if len({self.size(side)[0] for side in self.sides}) > 1 and self.embeddings.tie in ("all", "inputs"):
            raise ValueError(
                f"embeddings.tie: {self.embeddings.tie} needs one width, but encoder and decoder have "
                f"{self.size('encoder')[0]} and {self.size('decoder')[0]}; tie output or none"
            )
        if self.languages.output_bias and not self.bias.output:
            raise ValueError("languages.output_bias: each language's own bias needs bias.output: true")
        for side in self.sides:
            fusion = self.stack(side).fusion
            if self.languages.fusion in (side, "both") and not isinstance(fusion, GroupsConfig):
                raise ValueError(
                    f"languages.fusion: {self.languages.fusion}: {side}.fusion is {fusion.type}, and only "
                    "groups have weights of each language"
                )
        self._check_stacks()
        if self.share_layers:
            self._check_shared_layers()
        self._check_parametrization()
        return self

    def _check_decoder_only(self) -> None:
        """Refuse parts of a decoder-only model that read an encoder or stand between two stacks."""
        for name, socket in (("mixer", self.decoder.mixer), ("connection", self.decoder.connection)):
            if socket.brings_cross_attention or "cross" in socket.replaces:
                raise ValueError(
                    f"decoder.{name}: {socket.type} reads an encoder, and architecture: decoder_only has none"
                )
        between = {
            "share_layers: true": self.share_layers,
            f"languages.transform: {self.languages.transform}": self.languages.transform != "none",
            f"languages.fusion: {self.languages.fusion}": self.languages.fusion in ("encoder", "both"),
        }
        if wanted := [setting for setting, asked in between.items() if asked]:
            raise ValueError(f"{wanted[0]} needs an encoder, and architecture: decoder_only has none")

    def _check_parametrization(self) -> None:
        """CompleteP needs sums of sub-layers, one width, and values that only the width decides."""
        if self.parametrization is None:
            return
        for side in self.sides:
            connection = self.stack(side).connection
            if not connection.scales_branches:
                raise ValueError(
                    "parametrization: complete_p divides what sub-layers add to the stream by the depth, "
                    f"and {side}.connection {connection.type} has no such sum, or one with a factor for "
                    "the depth; use pre_norm"
                )
            if self.stack(side).mixer.has_companion:
                raise ValueError(
                    f"parametrization: complete_p says nothing of what {side}.mixer "
                    f"{self.stack(side).mixer.type} carries beside the stream; use self_attention"
                )
            aggregation = self.stack(side).aggregation
            if aggregation.has_own_maps:
                raise ValueError(
                    f"parametrization: complete_p has no learning rates for the maps of {side}.aggregation "
                    f"{aggregation.type}; use another one, such as dlcl"
                )
            if self.size(side)[0] != self.d_model:
                raise ValueError(
                    f"parametrization: complete_p has one base width; leave {side}.size.d_model out"
                )
        if self.initialization.needs_layers or self.initialization.has_gains:
            raise ValueError(
                f"parametrization: complete_p divides by the depth already, and initialization "
                f"{self.initialization.type} depends on the layers; use another one, such as xavier"
            )

    def scaling(self, side: Side) -> Scaling:
        """The factors of one side; all 1 without a parametrisation."""
        if self.parametrization is None:
            return UNSCALED
        base = self.parametrization.base
        base_layers = base.encoder_layers if side == "encoder" else base.decoder_layers
        d_model, heads, _ = self.size(side)
        return self.parametrization.scaling(d_model, heads, self.stack(side).layers, base_layers)

    @property
    def base_width(self) -> int:
        """The width that embeddings begin with, and that learning rates are for."""
        return self.parametrization.base.d_model or self.d_model if self.parametrization else self.d_model

    def _check_stacks(self) -> None:
        """Refuse sockets that do not fit their stack or the other one; nothing is built."""
        specs = self.specs()
        for side in self.sides:
            self.stack(side).check(specs[side])
        encoder, decoder = self.encoder, self.decoder
        calls = decoder.connection.calls(specs["decoder"])
        reading = "mixer" if "cross" in decoder.mixer.replaces else "cross"
        readers = len({call.layer for call in calls if call.kind == reading})
        if not self.is_decoder_only and encoder.fusion.per_decoder_layer and readers < decoder.layers:
            raise ValueError(
                f"encoder.fusion {encoder.fusion.type} has a result for each decoder layer, but with "
                f"decoder.connection {decoder.connection.type} only {readers} of {decoder.layers} "
                "decoder layers read the encoder"
            )
        width = decoder.connection.result_width(specs["decoder"])
        if width != specs["decoder"].dim and self.embeddings.tie in ("all", "output"):
            raise ValueError(
                f"embeddings.tie: with decoder.connection {decoder.connection.type} the output projection "
                f"reads width {width}, so it cannot be the embedding of width {specs['decoder'].dim}; "
                "tie inputs or none"
            )
        if self.languages.norm and not any(self.stack(side).has_norm(specs[side]) for side in self.sides):
            none = "the decoder has no" if self.is_decoder_only else "neither encoder nor decoder has a"
            raise ValueError(f"languages.norm: {none} norm with these settings")

    def _check_shared_layers(self) -> None:
        """Layers that are built alike."""
        encoder, decoder = self.encoder, self.decoder
        reads = isinstance(encoder.mixer, SelfAttentionConfig) and encoder.mixer.relative is None
        if not (reads and isinstance(decoder.mixer, MixedAttentionConfig)):
            raise ValueError(
                "share_layers needs encoder.mixer: self_attention without relative positions and "
                f"decoder.mixer: mixed_attention, not {encoder.mixer.type} and {decoder.mixer.type}"
            )
        alike = {
            "layers": encoder.layers == decoder.layers,
            "size": self.size("encoder") == self.size("decoder"),
            "connection": encoder.connection == decoder.connection,
            "feed_forward": encoder.feed_forward == decoder.feed_forward,
            "parametrization.base layers": self.scaling("encoder") == self.scaling("decoder"),
        }
        if differing := [name for name, same in alike.items() if not same]:
            raise ValueError(f"share_layers needs the same {' and '.join(differing)} in encoder and decoder")

    def unused_settings(self) -> UnusedSettings:
        """An encoder beside a decoder that is alone."""
        if self.is_decoder_only:
            yield "encoder", "architecture: decoder_only has a decoder alone; set model.decoder"

    def initialization_left_out(self) -> str | None:
        """A message where the initialization of a connection is not used; None elsewhere."""
        own = {side: self.stack(side).connection.initialization for side in self.sides}
        if "initialization" in self.model_fields_set or {*own.values()} <= {None, self.initialization.type}:
            return None
        side, name = next((side, name) for side, name in own.items() if name is not None)
        return (
            f"model.initialization is {self.initialization.type}: that of {side}.connection "
            f"{self.stack(side).connection.type} ({name}) counts where both stacks have it; set "
            f"model.initialization={name} or {self.initialization.type}"
        )

    @property
    def is_decoder_only(self) -> bool:
        """Whether the decoder is the only stack."""
        return self.architecture == "decoder_only"

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that have a stack."""
        return ("decoder",) if self.is_decoder_only else SIDES

    def stack(self, side: Side) -> StackConfig:
        """The stack of one side."""
        return self.encoder if side == "encoder" else self.decoder

    def size(self, side: Side) -> tuple[int, int, int]:
        """d_model, heads and feed_forward of one side."""
        own_size = self.stack(side).size
        return (
            own_size.d_model or self.d_model,
            own_size.heads or self.heads,
            own_size.feed_forward or self.feed_forward,
        )

    def specs(self, languages: int = 0) -> dict[Side, StackSpec]:
        """The specs of the sockets of both stacks; the two share one pool of shared modules.

        `languages` is the number of those that have parameters of their own, in a model of several.
        """
        shared = SharedModules()
        specs = {side: self._spec(side, languages, shared) for side in self.sides}
        if self.is_decoder_only:
            return specs
        width = self.encoder.connection.result_width(specs["encoder"])
        return {side: replace(spec, memory_width=width) for side, spec in specs.items()}

    def _spec(self, side: Side, languages: int, shared: SharedModules) -> StackSpec:
        stack = self.stack(side)
        other = stack if self.is_decoder_only else self.stack("decoder" if side == "encoder" else "encoder")
        dim, heads, feed_forward = self.size(side)
        positions = stack.positions or self.positions
        return StackSpec(
            side=side,
            dim=dim,
            memory_width=self.size(self.sides[0])[0],
            layers=stack.layers,
            other_layers=0 if self.is_decoder_only else other.layers,
            sublayers=stack.sublayers(side, is_decoder_only=self.is_decoder_only),
            heads=heads,
            feed_forward=feed_forward,
            activation=self.activation,
            dropout=self.dropout,
            norm_eps=self.norm_eps,
            attention_bias=self.bias.attention,
            feed_forward_bias=self.bias.feed_forward,
            norm_style=stack.connection.norm_style,
            mixer_width=dim,
            other_connection=other.connection,
            other_mixer=other.mixer,
            shared=shared,
            languages=languages if self.languages.norm else 0,
            fusion_languages=languages if self.languages.fusion in (side, "both") else 0,
            scaling=self.scaling(side),
            inner_norm=self.inner_norm,
            norm_kind=self.norm,
            key_value_heads=stack.size.key_value_heads or self.key_value_heads,
            qk_norm=self.qk_norm,
            rotary=positions if isinstance(positions, RotaryConfig) else None,
            starts=frozenset({0}) if stack.recurrence is None else stack.recurrence.starts(stack.layers),
        )
