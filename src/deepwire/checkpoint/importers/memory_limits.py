"""What a foreign checkpoint may ask for: no more memory than the file itself has bytes."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from deepwire.errors import ModelError

_ZIP = b"PK\x03\x04"
_OF_TORCH = "torch.save writes no such file; see that it is the original one"


def check_archive(path: Path) -> None:
    """See that a PyTorch file takes no more memory than its size; one that is no zip archive is passed.

    `torch.save` writes a zip archive without compression. A compressed member can unfold to a thousand times
    its size, and members that share their bytes add up to more than the file.

    Raises:
        ModelError: A member is compressed, the members add up to more than the file, or the archive is
            damaged or holds a TorchScript program.
    """
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, OverflowError, NotImplementedError) as error:
        raise ModelError(f"{path}: is not a sound PyTorch file: {error}") from None
    if any("/code/" in member.filename for member in members):
        raise ModelError(
            f"{path}: is a TorchScript program, which is code and not opened",
            "write its parameters only: torch.save(dict(model.named_parameters()), 'parameters.pt')",
        )
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise ModelError(f"{path}: holds compressed data ({member.filename})", _OF_TORCH)
    size, held = path.stat().st_size, sum(member.file_size for member in members)
    if held > size:
        raise ModelError(f"{path}: names {held} bytes of content, but has {size}", _OF_TORCH)


def check_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """See that every tensor is plain numbers, and all of them in the file.

    Raises:
        ModelError: One repeats numbers (stride 0), or is sparse, quantised, complex or without values.
    """
    for name, tensor in tensors.items():
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_nested
        if not plain or tensor.is_quantized or tensor.is_complex():
            raise ModelError(
                f"{path}: tensor {name} is {_kind(tensor)}, and only dense real numbers are read",
                "write the parameters as ordinary tensors",
            )
        stored, needed = tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size()
        if needed > stored:
            raise ModelError(
                f"{path}: tensor {name} of shape {list(tensor.shape)} takes {needed} bytes, but the file "
                f"holds {stored} of them",
                "write all of its values: tensor.contiguous()",
            )


def _kind(tensor: Tensor) -> str:
    if tensor.is_nested:
        return "nested"
    if tensor.layout != torch.strided:
        return "sparse"
    if tensor.device.type != "cpu":
        return "without values"
    return "quantised" if tensor.is_quantized else "complex"
