"""Residual connections with layer norm before or after each sub-layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from deepwire.model.connections.connection import Call, Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.context import Context
from deepwire.model.layers import NoNorm
from deepwire.model.stack_spec import NormStyle, StackSpec

Residual = Literal["input", "normalised"]


class NormFirstSection(ConnectionSection):
    """Settings of connections with a norm in front of each sub-layer."""

    residual: Residual = Field(
        "input",
        description="what the output of a sub-layer is added to: its input, or its normalised input "
        "(normalised: Neutron's default order)",
    )
    mixer_norm: bool = Field(
        True,
        description="false: the mixer reads the stream as it is, as around Neutron's multi-head "
        "highly parallelised LSTM",
    )
    final_norm: bool = Field(True, description="one more norm after the stack")

    def has_norm(self, spec: StackSpec) -> bool:
        """At the end, or in front of some sub-layer."""
        return self.final_norm or self.mixer_norm or any(kind != "mixer" for kind in spec.sublayers)


class PreNormConfig(NormFirstSection):
    """Layer norm before each sub-layer, and one after the stack."""

    drops: ClassVar[Droppable] = "sublayers"
    scales_branches: ClassVar[bool] = True

    type: Literal["pre_norm"] = "pre_norm"

    @property
    def takes_ways(self) -> bool:
        """In the ordinary order of norms and residuals."""
        return self.residual == "input" and self.mixer_norm

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return PreNorm(self, spec)


class PreNorm(Connection):
    """x <- x + drop(F(LN(x))), with a final norm (Wang et al. 2019, equation 4).

    With the residual taken from the normalised input, x <- LN(x) + drop(F(LN(x))): the post-norm Transformer
    with one more norm, on the embedding. A mixer without norm reads x and is added to x.
    """

    def __init__(self, config: NormFirstSection, spec: StackSpec) -> None:
        super().__init__(config.calls(spec))
        self.from_normalised = config.residual == "normalised"
        self.norms = nn.ModuleList(
            spec.norm() if config.mixer_norm or call.kind != "mixer" else NoNorm() for call in self.calls
        )
        self.final_norm = spec.norm() if config.final_norm else None
        self.dropout = spec.branch()

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The normalised stream."""
        return self.norms[index](state[0], context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output to the stream, or to its normalised form."""
        return (self.residual(state, read) + self.dropout(output),)

    def residual(self, state: DepthState, read: Tensor) -> Tensor:
        """The tensor that the output of a sub-layer that read `read` is added to, `[B, T, d]`."""
        return read if self.from_normalised else state[0]


class PostNormConfig(ConnectionSection):
    """Layer norm after each residual addition."""

    norm_style: ClassVar[NormStyle] = "output"
    scales_branches: ClassVar[bool] = True

    type: Literal["post_norm"] = "post_norm"
    embedding_norm: bool = Field(
        False,
        description="also normalise the embedding: Neutron's default order, where each residual is "
        "taken from the normalised input and a final norm closes the stack, is exactly this",
    )
    mixer_norm: bool = Field(
        True,
        description="false: no norm between a layer and the mixer of the next one, as around Neutron's "
        "multi-head highly parallelised LSTM; the last layer keeps its norm",
    )

    @model_validator(mode="after")
    def _norms_fit(self) -> PostNormConfig:
        if self.embedding_norm and not self.mixer_norm:
            raise ValueError(
                "mixer_norm: false leaves out the norms in front of all mixers, and the norm of the "
                "embedding is the one in front of the first; leave out embedding_norm"
            )
        return self

    def droppable(self) -> Droppable:
        """Every sub-layer, where each has a norm: otherwise the last layer is needed for its own."""
        return "sublayers" if self.mixer_norm else "nothing"

    @property
    def takes_ways(self) -> bool:
        """The residual is the stream."""
        return True

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return PostNorm(self, spec)


class PostNorm(Connection):
    """x <- LN(x + drop(F(x))) (Vaswani et al. 2017, section 3.1; Wang et al. 2019, equation 3)."""

    def __init__(self, config: PostNormConfig, spec: StackSpec) -> None:
        super().__init__(config.calls(spec))

        def has_norm(call: Call) -> bool:
            return config.mixer_norm or not call.closes or call.layer == spec.layers - 1

        self.norms = nn.ModuleList(spec.norm() if has_norm(call) else NoNorm() for call in self.calls)
        self.embedding_norm = spec.norm() if config.embedding_norm else None
        self.dropout = spec.branch()

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Begin with the embedding, normalised where asked for."""
        return (x if self.embedding_norm is None else self.embedding_norm(x, context),)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The stream as it is."""
        return state[0]

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output to the stream and normalise the sum."""
        return (self.norms[index](state[0] + self.dropout(output), context),)
