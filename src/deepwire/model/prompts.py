"""Tokens of rows of different lengths side by side: joined without padding, or ending together."""

from __future__ import annotations

import torch
from torch import Tensor


def at_places(x: Tensor, places: Tensor) -> Tensor:
    """`[B, n, d]` at places `[B, m]`."""
    return x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.size(-1)))


def joined_places(lengths: Tensor, source: int, target: int) -> tuple[Tensor, Tensor]:
    """How rows `[S | T]` of padded sources and targets are joined without the padding of the sources.

    Args:
        lengths: Tokens of each source, `[B]`.
        source, target: The widths S and T.

    Returns:
        `[B, S + T]`, where each place takes its token from: source, target, then the padding of the source.
        `[B, T]`, the places of the target.
    """
    lengths = lengths.unsqueeze(1)
    places = torch.arange(source + target, device=lengths.device)
    behind = torch.where(places < lengths + target, places - lengths + source, places - target)
    return torch.where(places < lengths, places, behind), lengths + places[:target]


def ending_together(x: Tensor, lengths: Tensor, longest: int) -> Tensor:
    """Rows `[B, T, d]`, padded on the right, moved so that all end together: `[B, longest, d]`.

    In front of a row comes something of its end, which nobody may see.

    Args:
        x: The rows.
        lengths: Tokens of each, `[B]`.
        longest: The largest of `lengths`.
    """
    places = (torch.arange(longest, device=x.device) - (longest - lengths).unsqueeze(1)) % x.size(1)
    return at_places(x, places)
