"""Marian's files: parameters as `.npz` and as `.bin`, options as YAML, vocabularies of words."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from deepwire.convert.marian_arrays import Arrays

OPTIONS = "special:model.yml"
_VERSION, _ALIGNED = 1, 256
# Marian's numbers of types: what kind, and bytes.
_FLOAT32, _INT8 = 0x0404, 0x0101


def yaml_text(options: Mapping[str, object]) -> str:
    """Options, one a line; JSON's values are YAML's too."""
    return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in options.items())


def write_npz(arrays: Arrays, options: Mapping[str, object], path: Path) -> None:
    """Parameters and options, as Marian trains and translates with."""
    # Marian's options end with a zero byte.
    text = np.frombuffer(yaml_text(options).encode() + b"\0", np.int8)
    contents: dict[str, Any] = {OPTIONS: text, **arrays}
    np.savez(path, **contents)


def write_bin(arrays: Arrays, options: Mapping[str, object], path: Path) -> None:
    """The same in the form that is mapped into memory, which browsers read.

    Version, number of items, a header of each, all names, all shapes, padding, all contents.
    """
    text = np.frombuffer(yaml_text(options).encode() + b"\0", np.int8)
    items: dict[str, NDArray[np.generic]] = {**arrays, OPTIONS: text}
    contents = [_padded(array.tobytes()) for array in items.values()]
    headers, names, shapes = b"", b"", b""
    for (name, array), content in zip(items.items(), contents, strict=True):
        written = name.encode() + b"\0"
        kind = _FLOAT32 if array.dtype == np.float32 else _INT8
        size = len(content) if kind == _FLOAT32 else array.nbytes
        headers += struct.pack("<4Q", len(written), kind, array.ndim, size)
        names += written
        shapes += struct.pack(f"<{array.ndim}i", *array.shape)
    begin = struct.pack("<2Q", _VERSION, len(items)) + headers + names + shapes
    gap = -(len(begin) + 8) % _ALIGNED
    with path.open("wb") as file:
        file.write(begin + struct.pack("<Q", gap) + bytes(gap))
        for content in contents:
            file.write(content)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNED)


def word_list(pieces: Sequence[str]) -> str:
    """A vocabulary of words with their numbers, as YAML."""
    return "".join(
        f"{json.dumps(piece, ensure_ascii=False)}: {number}\n" for number, piece in enumerate(pieces)
    )


def read_npz(path: Path) -> tuple[Arrays, dict[str, object]]:
    """Parameters and options of a model; nothing of the file is executed."""
    with np.load(path, allow_pickle=False) as stored:
        text = stored[OPTIONS].tobytes().rstrip(b"\0").decode()
        arrays = {name: stored[name] for name in stored.files if not name.startswith("special:")}
    return arrays, yaml.safe_load(text)
