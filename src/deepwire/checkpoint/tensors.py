"""Tensors on disk in the safetensors format, checked before anything is allocated."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from deepwire.errors import ModelError
from deepwire.io.regular_files import cannot_read, open_regular

Shape = tuple[int, ...]

_LARGEST_SIZE = (1 << 63) - 1
"""Of a dimension: torch counts with 64 bits and a sign."""


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write named tensors to ``path``. They may lie on any device; none may share memory with another.

    Raises:
        OSError: If the disk is full or cannot be written.
    """
    path.touch()  # with the permissions of any new file; the library makes one for its owner alone
    permissions = stat.S_IMODE(path.stat().st_mode)
    try:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise _system_error(error) from error
    path.chmod(permissions)


def _system_error(error: SafetensorError) -> OSError:
    """The system's error behind one of the safetensors library, which has its number only in its text."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def read_shapes(path: Path) -> dict[str, Shape]:
    """Names and shapes of the tensors in ``path``, without reading the tensors.

    Raises:
        ModelError: If the file is not safetensors, or its header disagrees with its size.
    """
    try:
        open_regular(path).close()  # the library would wait for a pipe, and gives no error numbers
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no mapping
    except OSError as error:
        raise cannot_read(path, error) from error
    except SafetensorError as error:
        raise _not_safetensors(path, error) from error
    for name, shape in shapes.items():
        if max(shape, default=0) > _LARGEST_SIZE:
            raise ModelError(f"{path}: tensor {name}: shape {list(shape)} is too large")
    return shapes


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
        raise _not_safetensors(path, error) from error


def _not_safetensors(path: Path, error: SafetensorError) -> ModelError:
    return ModelError(f"{path}: is not a safetensors file: {error}")


def bytes_of(tensors: dict[str, Tensor]) -> int:
    """How many bytes the values of ``tensors`` take on disk."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
