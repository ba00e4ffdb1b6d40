"""The `model` section of a run file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from deepwire.config.choice import by_name
from deepwire.config.counts import MAX_SIZE, Count
from deepwire.config.section import Section, UnusedSettings
from deepwire.model.aggregations.aggregation import AggregationSection
from deepwire.model.aggregations.last import LastConfig
from deepwire.model.connections.connection import ConnectionSection
from deepwire.model.connections.residual import PreNormConfig
from deepwire.model.context import DropoutConfig, SharedModules, Side, SocketSection, StackContext, Sublayer
from deepwire.model.embedding import EmbeddingConfig, PositionsConfig, SinusoidalConfig
from deepwire.model.fusions.fusion import FusionSection
from deepwire.model.fusions.groups import GroupsConfig
from deepwire.model.fusions.top import TopConfig
from deepwire.model.initialization import Initialization, LipschitzConfig, XavierConfig
from deepwire.model.languages import LanguagesConfig
from deepwire.model.layers import ActivationName
from deepwire.model.mixers.mixed_attention import MixedAttentionConfig
from deepwire.model.mixers.per_layer import AnyMixer
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.parametrization import UNSCALED, CompletePConfig, Scaling

_SIDES: tuple[Side, Side] = ("encoder", "decoder")


def _initialization_that_learns_best(given: Mapping[str, object]) -> Initialization:
    """What a model begins with whose settings do not say it; docs/papers.md has the measurements.

    Norms after the sum bring small embeddings to size at once, and small ones learn faster. Where the
    embedding goes up the stack as it is, the words would be a whisper beside the positions.
    """
    stacks = given.get("encoder"), given.get("decoder")
    styles = {stack.connection.norm_style for stack in stacks if isinstance(stack, StackConfig)}
    return LipschitzConfig() if styles == {"output"} else XavierConfig()


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


class StackConfig(Section):
    """One stack: its depth and its four sockets."""

    layers: int = Field(6, ge=1, le=10_000, description="number of layers")
    size: SizeConfig = Field(SizeConfig(), description="widths of this side, where they differ")
    positions: PositionsConfig | None = Field(None, description="of this side; model.positions without it")
    scale_embedding: bool | None = Field(
        None, description="of this side: multiply by the square root of d_model; embeddings.scale without it"
    )
    mixer: AnyMixer = SelfAttentionConfig()
    connection: ConnectionSection = PreNormConfig()
    aggregation: AggregationSection = LastConfig()
    fusion: FusionSection = TopConfig()
    feed_forward: bool = Field(
        True, description="whether layers have feed-forward sub-layers; some connections never have any"
    )
    inner_feed_forward: bool = Field(
        False,
        description="decoder: one more feed-forward sub-layer, between mixer and cross-attention (DeltaLM, "
        "Ma et al. 2021; the GTrans paper's models on OPUS-100)",
    )

    def sublayers(self, side: Side) -> tuple[Sublayer, ...]:
        """What each layer consists of on this side."""
        replaced = self.mixer.replaces | self.connection.replaces
        if side == "encoder" or "cross" in replaced:
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

    def has_norm(self, context: StackContext) -> bool:
        """Whether any part of such a stack has norms."""
        return any(socket.has_norm(context) for socket in self.sockets().values())

    def fusion_context(self, context: StackContext) -> StackContext:
        """What the fusion of this stack is told: the width of what the connection gives it."""
        return replace(context, dim=self.connection.result_width(context))

    def check(self, context: StackContext) -> None:
        """Refuse what does not fit this stack, with a `ValueError`; nothing is built."""
        side = context.side
        for name, socket in self.sockets().items():
            if side not in socket.sides:
                raise ValueError(f"{side}.{name}: {socket.type} does not work in the {side}")
        both = self.mixer.brings_cross_attention and self.connection.brings_cross_attention
        if both and side == "decoder":
            raise ValueError(
                f"decoder.mixer: {self.mixer.type} brings a cross-attention of its own, and so does "
                f"connection {self.connection.type}"
            )
        self.connection.check(context)
        calls = self.connection.calls(context)
        if self.inner_feed_forward and not any(call.kind == "inner_feed_forward" for call in calls):
            lacks = "needs a cross-attention after it"
            unfit = f"does not work with connection {self.connection.type}"
            raise ValueError(f"{side}.inner_feed_forward {unfit if 'cross' in context.sublayers else lacks}")
        self.aggregation.check(context)
        self.aggregation.check_ways(side, mixer=self.mixer.takes_ways, connection=self.connection.takes_ways)
        self.fusion.check(self.fusion_context(context))
        if context.inner_norm and not self.mixer.has_inner_norm:
            raise ValueError(
                f"inner_norm: true needs mixers with a place for it, but {side}.mixer is {self.mixer.type}; "
                "self_attention has one"
            )
        widths = dict.fromkeys((call.width, call.gives) for call in calls if call.kind == "mixer")
        for told in (context.of_mixer(*pair) for pair in widths):
            if told.mixer_width != told.dim and not self.mixer.reads_any_width:
                raise ValueError(
                    f"{side}.mixer: {self.mixer.type} reads vectors of width {told.dim} only, not "
                    f"{told.mixer_width} as this connection gives it"
                )
            if told.dim != context.dim and not isinstance(self.aggregation, LastConfig):
                raise ValueError(
                    f"{side}.aggregation: {self.aggregation.type} combines vectors of width {context.dim}, "
                    f"but with connection {self.connection.type} layers have {told.dim}; only last fits"
                )
            self.mixer.check(told)

    def unused_settings_in(self, context: StackContext) -> UnusedSettings:
        """Settings of the sockets that change nothing in such a stack."""
        for name, socket in self.sockets().items():
            for key, reason in socket.unused_settings_in(context):
                yield f"{name}.{key}", reason


class ModelConfig(Section):
    """An encoder-decoder model."""

    d_model: Count = Field(512, ge=1, le=MAX_SIZE, description="width of the stream")
    heads: int = Field(8, ge=1, le=MAX_SIZE, description="attention heads; they divide d_model")
    feed_forward: Count = Field(
        2048, ge=1, le=MAX_SIZE, description="inner width of feed-forward and two-layer hidden parts"
    )
    activation: ActivationName = Field("relu", description="in feed-forward sub-layers")
    dropout: DropoutConfig = Field(DropoutConfig(), description="one number, or one for each place")
    bias: BiasConfig = BiasConfig()
    norm_eps: float = Field(
        1e-6, gt=0, le=0.1, description="epsilon of layer norms (Neutron 1e-6, fairseq 1e-5)"
    )
    inner_norm: bool = Field(
        False,
        description="one more norm inside each self-attention and feed-forward sub-layer, in front of its "
        "last matrix (Sub-LN, with connection pre_norm)",
    )
    positions: PositionsConfig = SinusoidalConfig()
    max_length: Count = Field(
        1024, ge=1, le=MAX_SIZE, description="rows of learned position tables; others know no limit"
    )
    embeddings: EmbeddingConfig = EmbeddingConfig()
    encoder: StackConfig = StackConfig()
    decoder: StackConfig = StackConfig()
    share_layers: bool = Field(
        False,
        description="layer i of the decoder has the parameters of layer i of the encoder (He et al. 2018); "
        "with decoder.mixer: mixed_attention",
    )
    initialization: Initialization = Field(
        default_factory=lambda given: _initialization_that_learns_best(given),
        description="how parameters begin; without it lipschitz where both stacks have their norms after the "
        "sum (post_norm and its relatives), and xavier elsewhere",
    )
    parametrization: Annotated[CompletePConfig, by_name] | None = Field(
        None, description="how multipliers and learning rates follow width and depth: complete_p"
    )
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
        self._check_stacks()
        if self.share_layers:
            self._check_shared_layers()
        self._check_parametrization()
        return self

    def _check_parametrization(self) -> None:
        """CompleteP needs sums of sub-layers, one width, and values that only the width decides."""
        if self.parametrization is None:
            return
        for side in _SIDES:
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
        """What fits neither its stack nor the other one is refused with the file; nothing is built."""
        contexts = self.contexts()
        for side in _SIDES:
            self.stack(side).check(contexts[side])
        encoder, decoder = self.encoder, self.decoder
        calls = decoder.connection.calls(contexts["decoder"])
        reading = "mixer" if "cross" in decoder.mixer.replaces else "cross"
        readers = len({call.layer for call in calls if call.kind == reading})
        if encoder.fusion.per_decoder_layer and readers < decoder.layers:
            raise ValueError(
                f"encoder.fusion {encoder.fusion.type} has a result for each decoder layer, but with "
                f"decoder.connection {decoder.connection.type} only {readers} of {decoder.layers} "
                "decoder layers read the encoder"
            )
        width = decoder.connection.result_width(contexts["decoder"])
        if width != contexts["decoder"].dim and self.embeddings.tie in ("all", "output"):
            raise ValueError(
                f"embeddings.tie: with decoder.connection {decoder.connection.type} the output projection "
                f"reads width {width}, so it cannot be the embedding of width {contexts['decoder'].dim}; "
                "tie inputs or none"
            )
        if self.languages.norm and not any(self.stack(side).has_norm(contexts[side]) for side in _SIDES):
            raise ValueError("languages.norm: neither encoder nor decoder has a norm with these settings")

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
        """What no part of the model asks for."""
        stacks, contexts = {side: self.stack(side) for side in _SIDES}, self.contexts()
        for side, stack in stacks.items():
            for key, reason in stack.unused_settings_in(contexts[side]):
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

    def contexts(self, languages: int = 0) -> dict[Side, StackContext]:
        """What the sockets of both stacks are told; the two share one pool of shared modules.

        `languages` is the number of those that have parameters of their own, in a model of several.
        """
        shared = SharedModules()
        encoder, decoder = (self._context(side, languages, shared) for side in _SIDES)
        memory_width = self.encoder.connection.result_width(encoder)
        return {
            "encoder": replace(encoder, memory_width=memory_width),
            "decoder": replace(decoder, memory_width=memory_width),
        }

    def _context(self, side: Side, languages: int, shared: SharedModules) -> StackContext:
        stack, other = self.stack(side), self.stack("decoder" if side == "encoder" else "encoder")
        dim, heads, feed_forward = self.size(side)
        return StackContext(
            side=side,
            dim=dim,
            memory_width=self.size("encoder")[0],
            layers=stack.layers,
            other_layers=other.layers,
            sublayers=stack.sublayers(side),
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
        )
