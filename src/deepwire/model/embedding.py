"""Tokens to vectors: embedding, scale, position, norm and dropout of one side.

What is added so that a position is known are sinusoids, a learned table, or nothing: self-attention may turn
its queries and keys by the position instead (rotary).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.choice import by_name
from deepwire.config.section import Section
from deepwire.model.context import Context
from deepwire.model.languages import LanguageEmbedding
from deepwire.ops.dropout import Dropout


class EmbeddingConfig(Section):
    """Embeddings of both sides and the output projection."""

    tie: Literal["all", "output", "inputs", "none"] = Field(
        "all",
        description="one matrix for source, target and output (all; needs a joint vocabulary), for target "
        "and output (output), for source and target (inputs), or three matrices (none)",
    )
    scale: bool = Field(True, description="multiply by the square root of d_model")
    norm: bool = Field(False, description="layer norm of the sum of embedding and position")
    side: bool = Field(
        False,
        description="add a learned vector of the side, source or target, at every position (He et al. 2018)",
    )
    start: Literal["bos", "eos", "zero"] = Field(
        "bos", description="whose vector the decoder reads first: the end symbol's in fairseq, zero in Marian"
    )


class Positions(nn.Module, ABC):
    """Vectors of positions, added to the embedding."""

    @abstractmethod
    def forward(self, first: int, length: int, like: Tensor) -> Tensor | None:
        """Vectors `[length, d]` of positions first, first + 1, ... (from 0), or None; type as `like`."""

    @abstractmethod
    def at(self, positions: Tensor, like: Tensor) -> Tensor | None:
        """The same of `positions` `[n]` int64: `[n, d]`, all from tensors, for graphs of any length."""


class SinusoidalConfig(Section):
    """Fixed sinusoids (Vaswani et al. 2017, section 3.5)."""

    has_rows: ClassVar[bool] = False

    type: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "halves"] = Field(
        "interleaved",
        description="sine and cosine in turn (the paper, Neutron), or all sines before all cosines with "
        "frequencies over half - 1 (tensor2tensor, fairseq)",
    )
    first: int = Field(0, ge=0, description="number of the first position; 2 in fairseq")

    def build(self, dim: int, max_length: int) -> Positions:
        """The vectors of one stack."""
        return Sinusoids(self, dim)


class LearnedConfig(Section):
    """A learned table."""

    has_rows: ClassVar[bool] = True

    type: Literal["learned"] = "learned"
    first: int = Field(0, ge=0, description="row of the first position; 2 in fairseq")

    def build(self, dim: int, max_length: int) -> Positions:
        """The table of one stack."""
        return LearnedPositions(dim, max_length, self.first)


class NoPositionsConfig(Section):
    """No positions: for mixers that know the order by themselves."""

    has_rows: ClassVar[bool] = False

    type: Literal["none"] = "none"

    def build(self, dim: int, max_length: int) -> Positions:
        """Nothing."""
        return NoPositions()


class RotaryConfig(Section):
    """Queries and keys of self-attention are turned by their position (RoFormer); nothing is added."""

    has_rows: ClassVar[bool] = False

    type: Literal["rotary"] = "rotary"
    base: float = Field(
        10000.0, gt=1, le=1e12, description="the slowest pair turns by about 1/base a position"
    )
    layout: Literal["halves", "interleaved"] = Field(
        "halves",
        description="which two numbers of a head turn together: i and i + h/2 (GPT-NeoX, Llama), or 2i and "
        "2i + 1 (the paper)",
    )

    def build(self, dim: int, max_length: int) -> Positions:
        """Nothing that is added."""
        return NoPositions()


class Sinusoids(Positions):
    """sin and cos of position times frequency; the table grows with the longest sequence seen."""

    def __init__(self, config: SinusoidalConfig, dim: int) -> None:
        super().__init__()
        self.layout, self.first, self.dim = config.layout, config.first, dim
        self._table = torch.empty(0, dim)

    def forward(self, first: int, length: int, like: Tensor) -> Tensor | None:
        """Rows of the table, see the base class."""
        # Read once: another thread that translates with the same model may store a shorter one.
        table = self._table
        if table.size(0) < first + length or table.device != like.device:
            rows = max(256, 2 ** math.ceil(math.log2(first + length)))
            table = self._table = self._vectors(torch.arange(rows, device="cpu")).to(like.device)
        return table[first : first + length].to(like.dtype)

    def at(self, positions: Tensor, like: Tensor) -> Tensor:
        """See the base class."""
        return self._vectors(positions).to(like.dtype)

    def _vectors(self, positions: Tensor) -> Tensor:
        """Vectors of positions `[n]`, computed in float64: `[n, d]` float32."""
        position = (self.first + positions).to(torch.float64).unsqueeze(1)
        half = self.dim // 2
        span = half if self.layout == "interleaved" else half - 1
        exponent = torch.arange(half, dtype=torch.float64, device=positions.device) / max(span, 1)
        angle = position * torch.exp(-math.log(10000.0) * exponent)
        parts = (angle.sin(), angle.cos())
        if self.layout == "interleaved":
            return torch.stack(parts, -1).flatten(1).float()
        return torch.cat(parts, 1).float()


class LearnedPositions(Positions):
    """One learned vector for each position."""

    def __init__(self, dim: int, max_length: int, first: int) -> None:
        super().__init__()
        self.first = first
        self.table = nn.Parameter(torch.empty(max_length + first, dim))

    def forward(self, first: int, length: int, like: Tensor) -> Tensor | None:
        """Rows of the table; positions beyond it use the last row, so that no text is refused."""
        return self.at(torch.arange(first, first + length, device=self.table.device), like)

    def at(self, positions: Tensor, like: Tensor) -> Tensor:
        """See the base class and `forward`."""
        return self.table[(self.first + positions).clamp(max=self.table.size(0) - 1)]


def positions_learned(model: nn.Module) -> int | None:
    """How many positions a model has learned vectors of; None: its positions have no end."""
    tables = [each for each in model.modules() if isinstance(each, LearnedPositions)]
    return min((each.table.size(0) - each.first for each in tables), default=None)


class NoPositions(Positions):
    """Nothing is added."""

    def forward(self, first: int, length: int, like: Tensor) -> Tensor | None:
        """None."""
        return None

    def at(self, positions: Tensor, like: Tensor) -> Tensor | None:
        """None."""
        return None


PositionsConfig = Annotated[
    Annotated[
        SinusoidalConfig | LearnedConfig | RotaryConfig | NoPositionsConfig, Field(discriminator="type")
    ],
    by_name,
]


class SideEmbedding(nn.Module):
    """One learned vector `[1, d]` for all positions of a side, which says that they are source or target."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(1, dim))


class TokenEmbedding(nn.Module):
    """One matrix `[V, d]`, used to look tokens up, to predict them, or both; the row of padding is zero."""

    def __init__(self, size: int, dim: int, pad_id: int) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.weight = nn.Parameter(torch.empty(size, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up `[B, T]` to `[B, T, d]`; padding gets no gradient from here."""
        return functional.embedding(tokens, self.weight, padding_idx=self.pad_id)


class Embedding(nn.Module):
    """drop(norm(scale * (E[token] + L[target language]) + position + side)) of one side.

    The vectors of target language and side are there where they are asked for.

    Attributes:
        read_as: (id, other id): the first is looked up as if it were the other; None without.
        zero_id: The id whose vector is zero, whatever its row of the table is for; None: no id.
    """

    def __init__(
        self,
        table: TokenEmbedding,
        positions: Positions,
        *,
        scale: float,
        norm: nn.Module | None,
        dropout: float,
        language: LanguageEmbedding | None = None,
        side: SideEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.table, self.positions, self.scale, self.norm = table, positions, scale, norm
        self.language, self.side = language, side
        self.dropout = Dropout(dropout)
        self.read_as: tuple[int, int] | None = None
        self.zero_id: int | None = None

    def forward(self, tokens: Tensor, languages: Tensor | None = None, cut: Tensor | None = None) -> Tensor:
        """Embed `[B, T]`, whose first tokens are at position 0, to `[B, T, d]`.

        Args:
            tokens: The ids.
            languages: Target language of each row, `[B]` or `[1]`, where anything here depends on it.
            cut: `[B, T]` bool, where the vector of a token is zero in place of its embedding; None: nowhere.
        """
        return self.placed(tokens, self.vectors(0, tokens.size(1)), languages, cut)

    def vectors(self, first: int, length: int) -> Tensor | None:
        """Vectors added for the positions from `first` on, `[length, d]`, or None."""
        vectors: Tensor | None = self.positions(first, length, self.table.weight)
        return vectors

    def vectors_at(self, positions: Tensor) -> Tensor | None:
        """Likewise for `positions` `[n]` int64, `[n, d]`."""
        return self.positions.at(positions, self.table.weight)

    def placed(
        self,
        tokens: Tensor,
        vectors: Tensor | None,
        languages: Tensor | None = None,
        cut: Tensor | None = None,
    ) -> Tensor:
        """Embed `[B, T]` at the positions with these vectors, to `[B, T, d]`; `cut` as in `forward`."""
        x = self.of_tokens(tokens, languages, cut)
        if vectors is not None:
            x = x + vectors
        if self.side is not None:
            x = x + self.side.table
        return self.dropout(x if self.norm is None else self.norm(x, Context(languages)))

    def of_tokens(self, tokens: Tensor, languages: Tensor | None = None, cut: Tensor | None = None) -> Tensor:
        """The part of the tokens `[B, T]` alone, scaled and without positions, `[B, T, d]`."""
        if self.read_as is not None:
            tokens = tokens.masked_fill(tokens == self.read_as[0], self.read_as[1])
        x: Tensor = self.table(tokens)
        if self.zero_id is not None:
            x = x.masked_fill((tokens == self.zero_id).unsqueeze(-1), 0.0)
        if cut is not None:
            x = x.masked_fill(cut.unsqueeze(-1), 0.0)
        if self.language is not None:
            x = x + self.language(languages)
        return x * self.scale if self.scale != 1 else x
