"""Rotary positions: queries and keys are turned by an angle that grows with their position.

Su et al. 2021 (RoFormer: Enhanced Transformer with Rotary Position Embedding), section 3.2. A score depends
on the distance of query and key alone, so keys lie in a cache as they were turned.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deepwire.model.embedding import RotaryConfig, SinusoidalConfig, Sinusoids


class Rotary(nn.Module):
    """Turns pair i of a vector at position t by t base^(-2i/h), i from 0 to h/2 - 1 (equation 15).

    Args:
        config: The angles, and which numbers are a pair.
        dim: Width h of the vectors, even.
    """

    def __init__(self, config: RotaryConfig, dim: int) -> None:
        super().__init__()
        self.halves = config.layout == "halves"
        self.angles = _Angles(config.base, dim)

    def forward(self, x: Tensor, position: int | Tensor | None = None) -> Tensor:
        """Turn queries or keys `[..., T, h]`: (a, b) becomes (a cos - b sin, b cos + a sin).

        Args:
            x: The vectors, in the order of their positions from 0.
            position: The position of all of them instead, also `[]` int64.
        """
        cosine, sine = self._rows(x, position).chunk(2, -1)
        if self.halves:
            a, b = x.chunk(2, -1)
        else:
            a, b = x[..., ::2], x[..., 1::2]
        pair = a * cosine - b * sine, b * cosine + a * sine
        return torch.cat(pair, -1) if self.halves else torch.stack(pair, -1).flatten(-2)

    def _rows(self, x: Tensor, position: int | Tensor | None) -> Tensor:
        """Cosines and sines of the positions, `[T, h]`, or `[1, h]` of one for all."""
        if isinstance(position, Tensor):
            return self.angles.at(position.view(1), x)
        if position is None and torch.compiler.is_compiling():
            # A graph that shall serve every length has no table of some length.
            return self.angles.at(torch.arange(x.size(-2), device=x.device), x)
        first, length = (0, x.size(-2)) if position is None else (position, 1)
        rows: Tensor = self.angles(first, length, x)
        return rows

    def extra_repr(self) -> str:
        """Show the settings when printed."""
        return f"base={self.angles.base}, halves={self.halves}"


class _Angles(Sinusoids):
    """A table of cosines and then sines, `[h]` a position."""

    def __init__(self, base: float, dim: int) -> None:
        super().__init__(SinusoidalConfig(), dim)
        self.base = base

    def at(self, positions: Tensor, like: Tensor) -> Tensor:
        """Rotations of `positions` `[n]`: `[n, h]`."""
        return self._vectors(positions).to(like.dtype)

    def _vectors(self, positions: Tensor) -> Tensor:
        exponent = torch.arange(0, self.dim, 2, dtype=torch.float64, device=positions.device) / self.dim
        angle = positions.to(torch.float64).unsqueeze(1) * self.base**-exponent
        return torch.cat((angle.cos(), angle.sin()), 1).float()
