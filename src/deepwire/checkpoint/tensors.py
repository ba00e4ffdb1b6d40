"""Tensors on disk in the safetensors format, checked before anything is allocated."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path
from typing import TypeGuard

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from deepwire.checkpoint.files import cannot_read, open_regular
from deepwire.errors import ModelError

Shape = tuple[int, ...]

_LARGEST_HEADER = 100_000_000
_ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "BF16": 2,
    "F16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write named tensors to ``path``. They may lie on any device; none may share memory with another."""
    path.touch()  # with the permissions of any new file; the library makes one for its owner alone
    permissions = stat.S_IMODE(path.stat().st_mode)
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path)
    path.chmod(permissions)


def read_shapes(path: Path) -> dict[str, Shape]:
    """Names and shapes of the tensors in ``path``, without reading the tensors.

    Raises:
        ModelError: If the file is not safetensors, or its header disagrees with its size.
    """
    try:
        size = path.stat().st_size
        with open_regular(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                raise ModelError(f"{path}: is not a safetensors file: a header of {length} bytes in {size}")
            header = json.loads(file.read(length))
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not a safetensors file: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{path}: is not a safetensors file: the header is not an object")
    entries = {name: _entry(path, name, entry) for name, entry in header.items() if name != "__metadata__"}
    named = sum(held for _, held in entries.values())
    if named != size - 8 - length:
        raise ModelError(f"{path}: holds {size - 8 - length} bytes of tensors, but its header names {named}")
    return {name: shape for name, (shape, _) in entries.items()}


def read_tensors(path: Path, device: torch.device) -> dict[str, Tensor]:
    """All tensors of ``path`` on ``device``.

    Raises:
        ModelError: If the file is not a sound safetensors file.
    """
    read_shapes(path)
    try:
        return load_file(path, device=str(device))
    except OSError as error:
        raise cannot_read(path, error) from error
    except SafetensorError as error:
        raise ModelError(f"{path}: is not a safetensors file: {error}") from error


def _entry(path: Path, name: str, entry: object) -> tuple[Shape, int]:
    """Shape and bytes of one tensor, as the header gives them."""
    shape = entry.get("shape") if isinstance(entry, dict) else None
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    item = _ITEM_BYTES.get(str(entry.get("dtype"))) if isinstance(entry, dict) else None
    if not _whole_numbers(shape) or not _whole_numbers(offsets) or len(offsets) != 2 or item is None:
        raise ModelError(f"{path}: tensor {name}: odd type, shape or place in the header")
    if math.prod(shape) * item != offsets[1] - offsets[0]:
        raise ModelError(
            f"{path}: tensor {name}: shape {shape} does not fit its {offsets[1] - offsets[0]} bytes"
        )
    return tuple(shape), offsets[1] - offsets[0]


def _whole_numbers(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(number, int) and 0 <= number < 1 << 63 for number in value
    )


def bytes_of(tensors: dict[str, Tensor]) -> int:
    """How many bytes the values of ``tensors`` take on disk."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
