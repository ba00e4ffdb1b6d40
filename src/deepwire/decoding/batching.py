"""Batches of sentences of about the same length."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deepwire.data.vocabulary import PAD


def batches_by_length(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Groups of indices into `lengths`, longest first, of at most `tokens` padded subwords each.

    A sentence longer than `tokens` is a batch of its own. Every index occurs exactly once.
    """
    batches: list[list[int]] = []
    batch: list[int] = []
    widest = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and (len(batch) + 1) * widest > tokens:
            batches.append(batch)
            batch = []
        widest = lengths[index] if not batch else widest
        batch.append(index)
    return [*batches, batch] if batch else batches


def padded(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Id sequences as one tensor `[N, longest]` (int64), filled with PAD."""
    width = max(len(ids) for ids in sequences)
    rows = [[*ids, *[PAD] * (width - len(ids))] for ids in sequences]
    return torch.tensor(rows, dtype=torch.int64).to(device)
