"""What may be in a file that is imported: tensors and plain values, and nothing that runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from deepwire.checkpoint.importers import read_foreign
from deepwire.errors import ModelError

sys.path.insert(0, str(Path(__file__).parent))
from foreign_checkpoints import parameters, write_fairseq

torch.set_num_threads(1)


class Payload:
    """Runs code when a careless reader opens the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_no_code_is_run(tmp_path: Path) -> None:
    """A file with code in it is refused with the name of the code; nothing happens."""
    torch.save(
        {"model": parameters("fairseq_prenorm"), "extra": Payload(tmp_path / "canary")}, tmp_path / "x.pt"
    )
    with pytest.raises(ModelError, match="is code and not opened") as error:
        read_foreign(tmp_path / "x.pt")
    assert "weights_only=False" in error.value.hint
    assert not (tmp_path / "canary").exists()


class Hostile(argparse.Namespace):
    """A namespace that pickles as argparse's, with names that matter to Python."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (argparse.Namespace, (), {"__class__": "x", "update": 1, "values": {"a": 1}, "heads": 4})


def test_arguments_are_plain_records(tmp_path: Path) -> None:
    """Arguments are read as values by name, whatever the names are."""
    torch.save({"model": {"a": torch.ones(1)}, "args": Hostile()}, tmp_path / "x.pt")
    found = read_foreign(tmp_path / "x.pt")
    assert found.settings == {"__class__": "x", "update": 1, "values": {"a": 1}, "heads": 4}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a sound PyTorch file|not a PyTorch file"),
        (b"hello, this is text", "PyTorch file"),
        (b"PK\x03\x04 cut short", "PyTorch file"),
        (b"\x89HDF\r\n\x1a\n....", "HDF5"),
    ],
)
def test_other_files(content: bytes, message: str, tmp_path: Path) -> None:
    """Files of other kinds, and damaged ones, are one line."""
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as error:
        read_foreign(path)
    assert "\n" not in str(error.value)


def test_cut_file(tmp_path: Path) -> None:
    """A checkpoint that was copied half."""
    path = write_fairseq(tmp_path, "fairseq_prenorm", "pt")
    data = path.read_bytes()
    for length in (len(data) // 2, len(data) - 100, 200):
        path.write_bytes(data[:length])
        with pytest.raises(ModelError, match="PyTorch file"):
            read_foreign(path)


def test_lists_and_empty_files(tmp_path: Path) -> None:
    """Tensors without names cannot be placed; a file without tensors is no checkpoint."""
    for content, message in (
        ([torch.ones(2)], "list without names"),
        ({"a": 1}, "no tensors"),
        (3, "holds int"),
    ):
        torch.save(content, tmp_path / "x.pt")
        with pytest.raises(ModelError, match=message):
            read_foreign(tmp_path / "x.pt")
    with pytest.raises(ModelError, match="is a folder"):
        read_foreign(tmp_path)
    with pytest.raises(ModelError, match="cannot read: No such file"):
        read_foreign(tmp_path / "none.pt")
