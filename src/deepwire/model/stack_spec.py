"""The stack that a socket is built for, and the base of the settings of every socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeVar, cast

from pydantic import Field
from torch import nn

from deepwire.config.choice import Choice
from deepwire.config.counts import Probability
from deepwire.config.section import NumberSection
from deepwire.model.embedding import RotaryConfig
from deepwire.model.layers import Branch, FeedForward, FeedForwardBias, NormKind, norm_layer
from deepwire.model.parametrization import UNSCALED, Scaling

Side = Literal["encoder", "decoder"]
SIDES: tuple[Side, Side] = ("encoder", "decoder")
NormStyle = Literal["input", "output", "none"]
Sublayer = Literal["mixer", "inner_feed_forward", "cross", "feed_forward"]
M = TypeVar("M", bound=nn.Module)


class DropoutConfig(NumberSection):
    """Dropout probability at each of the usual places; a plain number sets all of them."""

    written_as = (Probability,)
    plain_sets = ("embedding", "attention", "activation", "sublayer")
    no_number = f"must be a number from 0 to below 1, or one for each of {', '.join(plain_sets)}, not {{}}"

    embedding: float = Field(0.1, ge=0, lt=1, description="after the sum of embedding and position")
    attention: float = Field(0.1, ge=0, lt=1, description="on attention weights")
    activation: float = Field(
        0.1, ge=0, lt=1, description="after the activation inside feed-forward and hidden parts"
    )
    sublayer: float = Field(
        0.1, ge=0, lt=1, description="on the output of each sub-layer, before it joins the stream"
    )


class SharedModules:
    """Modules that both stacks own together; the first to ask makes them."""

    def __init__(self) -> None:
        self._settings: dict[str, Mapping[str, object]] = {}
        self._made: dict[tuple[str, int], nn.Module] = {}

    def agree(self, option: str, settings: Mapping[str, object]) -> None:
        """Note the settings of what an option shares; both stacks call it in `check`.

        Raises:
            ValueError: The other stack has other settings.
        """
        first = self._settings.setdefault(option, settings)
        differing = [name for name, value in settings.items() if value != first[name]]
        if differing:
            raise ValueError(f"{option} needs the same {' and '.join(differing)} in encoder and decoder")

    def get(self, option: str, number: int, make: Callable[[], M]) -> M:
        """Module `number` of those that an option shares, made now if nobody has asked for it before."""
        if (option, number) not in self._made:
            self._made[option, number] = make()
        return cast("M", self._made[option, number])  # an option shares one kind of module


@dataclass(frozen=True)
class StackSpec:
    """The stack's measures, handed to every socket.

    Attributes:
        side: Encoder or decoder.
        dim: Width d of the stream.
        memory_width: Width of the encoder's results, which a decoder reads.
        layers: Layers of this stack; `other_layers` those of the other one.
        sublayers: The sub-layers of each of its layers, in order.
        heads: Attention heads.
        feed_forward: Inner width of feed-forward sub-layers.
        activation: Name of the activation in feed-forward sub-layers.
        dropout: Probabilities by place.
        norm_eps: Epsilon inside the square root of every norm.
        attention_bias, feed_forward_bias: Which linear maps have a bias (`model.bias`).
        norm_style: Where the connection of this stack normalises; known to aggregations and fusions.
        mixer_width: Width of what the mixer reads.
        layer: Of the mixer that is built, from 0.
        ways: Whether its queries, keys and values are made of vectors of their own.
        other_connection, other_mixer: The settings of the other stack's connection and mixer.
        shared: Modules that both stacks may own together.
        languages: How many target languages have norms of their own; 0: norms are the same for all.
        fusion_languages: Likewise of the weights of groups in a fusion.
        scaling: Fixed factors of the parametrisation; all 1 without one.
        inner_norm: Whether sub-layers normalise what their last matrix reads.
        norm_kind: Layer norms or RMS norms.
        key_value_heads: Heads of keys and values, which divide `heads`; None: as many.
        qk_norm: Whether attention normalises queries and keys.
        rotary: How self-attention turns queries and keys by their positions; None: not at all.
        starts: Layers, from 0, before which the connection begins anew: the first, and those where a part of
            an encoder with rounds begins.
    """

    side: Side
    dim: int
    memory_width: int
    layers: int
    other_layers: int
    sublayers: tuple[Sublayer, ...]
    heads: int
    feed_forward: int
    activation: str
    dropout: DropoutConfig
    norm_eps: float
    attention_bias: bool
    feed_forward_bias: FeedForwardBias
    norm_style: NormStyle
    mixer_width: int
    other_connection: SocketSection
    other_mixer: SocketSection
    layer: int = 0
    ways: bool = False
    shared: SharedModules = field(default_factory=SharedModules)
    languages: int = 0
    fusion_languages: int = 0
    scaling: Scaling = UNSCALED
    inner_norm: bool = False
    norm_kind: NormKind = "layer"
    key_value_heads: int | None = None
    qk_norm: bool = False
    rotary: RotaryConfig | None = None
    starts: frozenset[int] = frozenset({0})

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.key_value_heads or self.heads

    @property
    def other_side(self) -> Side:
        """The side of the other stack."""
        return "decoder" if self.side == "encoder" else "encoder"

    @property
    def causal(self) -> bool:
        """Whether a position may see only itself and the past."""
        return self.side == "decoder"

    def of_mixer(self, reads: int | None, gives: int | None, layer: int = 0) -> StackSpec:
        """The spec of the mixer of a layer, which reads and gives vectors of these widths.

        None: the width of the stream.
        """
        return replace(self, mixer_width=reads or self.dim, dim=gives or self.dim, layer=layer)

    def norm(self, width: int | None = None, *, eps: float | None = None) -> nn.Module:
        """A norm of vectors of the stream, or of another width, as `model.norm` says.

        It is called with them and the target languages of the rows. `eps` in the place of the model's.
        """
        return norm_layer(self.norm_kind, width or self.dim, eps or self.norm_eps, self.languages)

    def head_norm(self) -> nn.Module:
        """A norm of the queries or keys of each head, the same for all heads and languages."""
        return norm_layer(self.norm_kind, self.dim // self.heads, self.norm_eps)

    def branch(self) -> Branch:
        """The module between the output of a sub-layer and the stream.

        For connections that say `scales_branches`.
        """
        return Branch(self.dropout.sublayer, self.scaling.branch)

    def feed_forward_network(self) -> FeedForward:
        """A feed-forward network as the model's settings say."""
        return FeedForward(
            self.dim,
            self.feed_forward,
            activation=self.activation,
            bias=self.feed_forward_bias,
            dropout=self.dropout.activation,
            norm=self.norm if self.inner_norm else None,
        )


class SocketSection(Choice):
    """Base of the settings of a mixer, connection, aggregation or fusion.

    Each of the four adds `build`, which makes the module. Nothing is built when a run file is read: what does
    not fit is refused by `check`.
    """

    # The stacks it works in.
    sides: ClassVar[frozenset[Side]] = frozenset({"encoder", "decoder"})
    # Whether it has norms, as a rule.
    normalises: ClassVar[bool] = True

    def check(self, spec: StackSpec) -> None:
        """Refuse settings that do not fit such a stack, with a `ValueError` that says why."""

    def has_norm(self, spec: StackSpec) -> bool:
        """Whether it has norms in such a stack, which may be each target language's own."""
        return self.normalises
