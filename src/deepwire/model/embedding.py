"""Tokens to vectors: embedding, scale, position, norm and dropout of one side."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.base import Section
from deepwire.model.languages import LanguageEmbedding
from deepwire.model.positions import Positions
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
    start: Literal["bos", "eos"] = Field(
        "bos", description="whose vector the decoder reads first; the end symbol's in fairseq"
    )


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
    """drop(norm(scale * (E[token] + L[target language]) + position)) of one side; L only where asked for.

    Attributes:
        read_as: (id, other id): the first is looked up as if it were the other; None without.
    """

    def __init__(
        self,
        table: TokenEmbedding,
        positions: Positions,
        *,
        scale: float,
        norm: nn.Module | None,
        dropout: float,
        read_as: tuple[int, int] | None = None,
        language: LanguageEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.table, self.positions, self.scale, self.norm = table, positions, scale, norm
        self.read_as, self.language = read_as, language
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed `[B, T]`, whose first tokens are at position 0, to `[B, T, d]`."""
        return self.placed(tokens, self.vectors(0, tokens.size(1)))

    def vectors(self, first: int, length: int) -> Tensor | None:
        """What is added for the positions from `first` on, `[length, d]`, or None."""
        vectors: Tensor | None = self.positions(first, length, self.table.weight)
        return vectors

    def placed(self, tokens: Tensor, vectors: Tensor | None) -> Tensor:
        """Embed `[B, T]` at the positions with these vectors, to `[B, T, d]`."""
        if self.read_as is not None:
            tokens = tokens.masked_fill(tokens == self.read_as[0], self.read_as[1])
        x = self.table(tokens)
        if self.language is not None:
            x = x + self.language()
        if self.scale != 1:
            x = x * self.scale
        if vectors is not None:
            x = x + vectors
        embedded: Tensor = self.dropout(x if self.norm is None else self.norm(x))
        return embedded
