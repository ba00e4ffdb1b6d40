"""What a socket is told about the stack that it is built for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast

from pydantic import Field, model_validator
from torch import nn

from deepwire.config.base import Section
from deepwire.model.languages import TargetLanguages
from deepwire.model.norm import layer_norm

Side = Literal["encoder", "decoder"]
NormStyle = Literal["input", "output", "none"]
M = TypeVar("M", bound=nn.Module)


class DropoutConfig(Section):
    """Dropout probability at each of the usual places; a plain number sets all of them."""

    embedding: float = Field(0.1, ge=0, lt=1, description="after the sum of embedding and position")
    attention: float = Field(0.1, ge=0, lt=1, description="on attention weights")
    activation: float = Field(
        0.1, ge=0, lt=1, description="after the activation inside feed-forward and hidden parts"
    )
    sublayer: float = Field(
        0.1, ge=0, lt=1, description="on the output of each sub-layer, before it joins the stream"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_number_for_all(cls, value: object) -> object:
        if isinstance(value, dict | cls):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
            return dict.fromkeys(cls.model_fields, value)
        raise ValueError(
            f"must be a number from 0 to below 1, or one for each of {', '.join(cls.model_fields)}"
        )


class SharedModules:
    """Modules that both stacks own together; the first to ask makes them."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], tuple[nn.Module, Mapping[str, object]]] = {}

    def get(self, option: str, number: int, settings: Mapping[str, object], make: Callable[[], M]) -> M:
        """Module `number` of those that an option shares, made now if nobody has asked for it before.

        Raises:
            ValueError: It was made with other settings.
        """
        if (option, number) not in self._made:
            self._made[option, number] = make(), settings
        module, first = self._made[option, number]
        differing = [name for name, value in settings.items() if value != first[name]]
        if differing:
            raise ValueError(f"{option} needs the same {' and '.join(differing)} in encoder and decoder")
        return cast("M", module)  # an option shares one kind of module


@dataclass(frozen=True)
class StackContext:
    """The stack's measures, handed to every socket's `build`.

    Attributes:
        side: Encoder or decoder.
        dim: Width d of the stream.
        memory_width: Width of the encoder's stream, which a decoder reads.
        layers: Layers of this stack; `other_layers` those of the other one.
        heads: Attention heads.
        feed_forward: Inner width of feed-forward sub-layers.
        activation: Name of the activation in feed-forward sub-layers.
        dropout: Probabilities by place.
        norm_eps: Epsilon inside the square root of every layer norm.
        attention_bias, feed_forward_bias: Which linear maps have a bias (`model.bias`).
        shared: Modules that both stacks may own together.
        norm_style: Where the connection of this stack normalises; known to aggregations and fusions.
        mixer_input: Width of what the mixer reads; `dim` without it.
        languages: Whose norms are each target language's own; None: norms are the same for all.
        fusion_languages: Likewise of the weights of groups in a fusion.
    """

    side: Side
    dim: int
    memory_width: int
    layers: int
    other_layers: int
    heads: int
    feed_forward: int
    activation: str
    dropout: DropoutConfig
    norm_eps: float
    attention_bias: bool
    feed_forward_bias: Literal["both", "first", "none"]
    shared: SharedModules = field(default_factory=SharedModules)
    norm_style: NormStyle = "input"
    mixer_input: int | None = None
    languages: TargetLanguages | None = None
    fusion_languages: TargetLanguages | None = None

    @property
    def causal(self) -> bool:
        """Whether a position may see only itself and the past."""
        return self.side == "decoder"

    def norm(self, width: int | None = None) -> nn.Module:
        """A layer norm of vectors of the stream, or of another width."""
        return layer_norm(width or self.dim, self.norm_eps, self.languages)
