"""Reads checkpoints of other programs: nothing in them is run, no more memory taken than they have bytes."""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from deepwire.checkpoint.model_files import read_tensors
from deepwire.errors import ModelError
from deepwire.io.regular_files import open_regular

_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
_ORIGINAL = "the program that made it writes no such file; see that it is the original one"
_KEEP_PARAMETERS = (
    "if you trust the file, keep its parameters only, where the program that wrote it is installed: "
    "torch.save(dict(model.named_parameters()), 'parameters.pt')"
)


@dataclass(frozen=True)
class ForeignCheckpoint:
    """The contents of a checkpoint of another program.

    Attributes:
        path: The file.
        tensors: Parameters by the names of that program, on the CPU, in their own number format.
        settings: What the program stored about itself (fairseq's arguments); empty where it stored nothing.
    """

    path: Path
    tensors: Mapping[str, Tensor]
    settings: Mapping[str, object]


class _PlainRecord:
    """Takes the place of a class of another program: keeps named plain values, and can do nothing."""

    values: dict[str, object]

    def __new__(cls, *_: object) -> _PlainRecord:
        """An empty record, whatever the object was made of."""
        record = super().__new__(cls)
        object.__setattr__(record, "values", {})
        return record

    def __setstate__(self, state: object) -> None:
        self.values.update(_named(state))

    def __setattr__(self, name: str, value: object) -> None:
        """Refused: a record has no attributes but its values."""
        raise pickle.UnpicklingError(f"a record has no attribute {name}")


# What fairseq leaves in its checkpoints beside tensors: arguments, meters, numbers of numpy. None of these
# classes is imported; `_PlainRecord` stands for each.
_REPLACED = (
    "argparse.Namespace",
    *(
        f"fairseq.{module}.{name}"
        for module in ("meters", "logging.meters")
        for name in ("AverageMeter", "TimeMeter", "StopwatchMeter", "SumMeter")
    ),
    "numpy.dtype",
    *(f"{module}.multiarray.scalar" for module in ("numpy.core", "numpy._core")),
)


def read_foreign_checkpoint(path: Path) -> ForeignCheckpoint:
    """Read a `.safetensors` file, or a PyTorch file of which only plain values and tensors are accepted.

    Raises:
        ModelError: It is missing, damaged, in another format, holds objects that are code, or asks for more
            memory than its size.
    """
    try:
        with open_regular(path) as file:
            head = file.read(len(_ZIP))
    except OSError as error:
        raise ModelError(f"{path}: cannot read: {error.strerror}", "name one file") from None
    if path.suffix == ".safetensors":
        foreign = ForeignCheckpoint(path, read_tensors(path, torch.device("cpu")), {})
    elif head and not head.startswith((_ZIP, _PICKLE)):
        raise ModelError(
            f"{path}: is not a PyTorch file: it is neither a zip archive nor a pickle",
            "a checkpoint is what torch.save writes, or a .safetensors file",
        )
    else:
        if head.startswith(_ZIP):
            check_archive(path)
        foreign = _from_content(path, _read_plain(path))
    for name, tensor in foreign.tensors.items():
        _check_tensor(path, name, tensor)
    return foreign


def check_archive(path: Path) -> None:
    """Check that a zip archive of tensors takes no more memory than its size.

    `torch.save` and Marian write archives without compression. A compressed member can unfold to a thousand
    times its size, and members that share their bytes add up to more than the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except Exception as error:  # a damaged archive ends in whatever its reader stumbles over
        raise ModelError(f"{path}: is not a sound PyTorch file or archive: {error}") from None
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise ModelError(f"{path}: holds compressed data ({member.filename})", _ORIGINAL)
    size, held = path.stat().st_size, sum(member.file_size for member in members)
    if held > size:
        raise ModelError(f"{path}: names {held} bytes of content, but has {size}", _ORIGINAL)


def _check_tensor(path: Path, name: str, tensor: Tensor) -> None:
    """Check that a tensor is plain numbers, all of them in the file and none repeated (stride 0)."""
    shape = list(tensor.shape)
    if not tensor.numel():  # its rows cost nothing, however many there are
        raise ModelError(f"{path}: tensor {name} of shape {shape} holds no numbers")
    dense = tensor.layout == torch.strided and not tensor.is_nested and tensor.device.type == "cpu"
    if not dense or tensor.is_quantized or tensor.is_complex():
        raise ModelError(f"{path}: tensor {name} is none of dense real numbers, and only these are read")
    stored, needed = tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size()
    if needed > stored:
        raise ModelError(
            f"{path}: tensor {name} of shape {shape} takes {needed} bytes, but the file holds {stored}",
            "write all of its values: tensor.contiguous()",
        )


def _read_plain(path: Path) -> object:
    """The content of a PyTorch file, read by PyTorch's restricted reader."""
    # mypy knows only the form without a name; the form with one stands for a class that is never imported.
    replaced: list[Callable[..., object] | tuple[Callable[..., object], str]] = [
        (_PlainRecord, name) for name in _REPLACED
    ]
    try:
        # PyTorch warns of old forms of storage and the like here, which its users need not know.
        with torch.serialization.safe_globals(replaced), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content: object = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files end in whatever the reader stumbles over
        if (named := _GLOBAL.search(str(error))) is not None:
            raise ModelError(
                f"{path}: holds {named[1]}, which is code and not opened", _KEEP_PARAMETERS
            ) from None
        reason = str(error).splitlines()[0] if str(error) else "it ends too early"
        raise ModelError(f"{path}: is not a sound PyTorch file: {reason}", _KEEP_PARAMETERS) from None
    return content


def _from_content(path: Path, content: object) -> ForeignCheckpoint:
    parameters = _named(content.get("model", content) if isinstance(content, dict) else None)
    tensors = {name: value.detach() for name, value in parameters.items() if isinstance(value, Tensor)}
    if not tensors:
        raise ModelError(f"{path}: holds no parameters by name, alone or as 'model'", _KEEP_PARAMETERS)
    assert isinstance(content, dict)
    # The arguments of the program: one list of them (`args`), or several sections of them (`cfg`).
    sections = _named(content.get("cfg"))
    settings = [_named(each) for each in (content.get("args"), sections.get("task"), sections.get("model"))]
    return ForeignCheckpoint(
        path, tensors, {name: value for each in settings for name, value in each.items()}
    )


def _named(value: object) -> dict[str, object]:
    inner = value.values if isinstance(value, _PlainRecord) else value
    return (
        {name: each for name, each in inner.items() if isinstance(name, str)}
        if isinstance(inner, Mapping)
        else {}
    )
