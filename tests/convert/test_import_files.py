"""What may be in a file that is imported: tensors and plain values, and nothing that runs."""

from __future__ import annotations

import argparse
import io
import os
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_checkpoints import parameters, write_dictionary, write_fairseq

from deepwire.convert.importers import IMPORTERS
from deepwire.convert.importers.foreign_checkpoint import read_foreign_checkpoint
from deepwire.convert.importers.importer import convert, read_vocabularies
from deepwire.errors import DeepwireError, ModelError
from deepwire.model.config import ModelConfig

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
    with pytest.raises(ModelError, match="is code and not opened"):
        read_foreign_checkpoint(tmp_path / "x.pt")
    assert not (tmp_path / "canary").exists()


class Hostile(argparse.Namespace):
    """A namespace that pickles as argparse's, with names that matter to Python."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (argparse.Namespace, (), {"__class__": "x", "update": 1, "values": {"a": 1}, "heads": 4})


def test_arguments_are_plain_records(tmp_path: Path) -> None:
    """Arguments are read as values by name, whatever the names are."""
    torch.save({"model": {"a": torch.ones(1)}, "args": Hostile()}, tmp_path / "x.pt")
    found = read_foreign_checkpoint(tmp_path / "x.pt")
    assert found.settings == {"__class__": "x", "update": 1, "values": {"a": 1}, "heads": 4}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a sound PyTorch file|not a PyTorch file"),
        (b"hello, this is text", "is not a PyTorch file: it is neither a zip archive nor a pickle"),
        (b"PK\x03\x04 cut short", "PyTorch file"),
    ],
)
def test_other_files(content: bytes, message: str, tmp_path: Path) -> None:
    """Files of other kinds, and damaged ones, are one line."""
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as error:
        read_foreign_checkpoint(path)
    assert "\n" not in str(error.value)


def zipped_again(path: Path, compressed: str) -> Path:
    """The file that torch.save wrote, with some members compressed."""
    kept = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(kept) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.infolist():
            kind = zipfile.ZIP_DEFLATED if compressed in member.filename else zipfile.ZIP_STORED
            new.writestr(member.filename, old.read(member), compress_type=kind)
    return path


@pytest.mark.parametrize("compressed", ["data.pkl", "data/0"])
def test_compressed_content_is_refused_before_it_unfolds(
    compressed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pt"
    torch.save({"model": {"a": torch.zeros(100_000)}}, path)
    assert read_foreign_checkpoint(zipped_again(path, "nothing")).tensors["a"].numel() == 100_000
    zipped_again(path, compressed)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(ModelError, match=f"compressed data .*{compressed}"):
        read_foreign_checkpoint(path)


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    """The directory of the archive names the same bytes many times."""
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", bytes(10_000))
        for number in range(1, 50):
            again = zipfile.ZipInfo(f"archive/data/{number}")
            first = archive.filelist[0]
            again.file_size = again.compress_size = first.file_size
            again.CRC, again.header_offset = first.CRC, first.header_offset
            archive.filelist.append(again)
    assert path.stat().st_size < 20_000
    with pytest.raises(ModelError, match="names 500000 bytes of content"):
        read_foreign_checkpoint(path)


@pytest.mark.parametrize("new_form", [True, False])
def test_tensors_larger_than_what_is_stored_are_refused(new_form: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    wide = {"a": torch.ones(4), "b": torch.zeros(1).expand(30_000, 10_000)}
    torch.save({"model": wide}, path, _use_new_zipfile_serialization=new_form)
    with pytest.raises(ModelError, match=r"tensor b of shape \[30000, 10000\] takes 1200000000 bytes"):
        read_foreign_checkpoint(path)


@pytest.mark.parametrize("kind", ["sparse", "quantised", "complex", "without values"])
def test_tensors_that_are_no_plain_numbers_are_refused(kind: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        odd = {
            "sparse": lambda: torch.sparse_coo_tensor(
                torch.tensor([[0], [0]]), torch.ones(1), (10**6, 10**6)
            ),
            "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
            "complex": lambda: torch.ones(3, dtype=torch.complex64),
            "without values": lambda: torch.ones(3, device="meta"),
        }[kind]()
        torch.save({"model": {"a": torch.ones(2), "odd": odd}}, tmp_path / "x.pt")
    with pytest.raises(ModelError, match="only these are read"):
        read_foreign_checkpoint(tmp_path / "x.pt")


def test_a_missing_layer_does_not_make_a_model_of_a_million(tmp_path: Path) -> None:
    values = parameters("fairseq_prenorm")
    values["encoder.layers.999999.fc1.weight"] = values["encoder.layers.0.fc1.weight"]
    torch.save({"model": values}, tmp_path / "x.pt")
    with pytest.raises(ModelError, match=r"has a layer 999999, but only \d+ tensors"):
        IMPORTERS["fairseq"].architecture(read_foreign_checkpoint(tmp_path / "x.pt"))


def test_a_model_much_larger_than_its_checkpoint_is_never_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shapes of single tensors can describe a model of terabytes."""
    kind, foreign = (
        IMPORTERS["fairseq"],
        read_foreign_checkpoint(write_fairseq(tmp_path, "fairseq_prenorm", "pt")),
    )
    config = ModelConfig.model_validate({"d_model": 100_000, "heads": 4, "feed_forward": 10_000_000})
    dictionary = write_dictionary(tmp_path / "dict.txt", 44)
    vocabularies = read_vocabularies(kind, dictionary, dictionary)
    monkeypatch.setattr(kind, "embeddings", lambda *_: {})
    with pytest.raises(ModelError, match=r"holds [\d,]+ numbers, but the architecture has [\d,]+ parameters"):
        convert(kind, foreign, config, vocabularies)


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors", "dict.txt", "codes"])
def test_pipes_are_not_waited_for(name: str, tmp_path: Path) -> None:
    dictionary = write_dictionary(tmp_path / "there", 4)
    path = tmp_path / name
    os.mkfifo(path)
    read: Callable[[], object] = partial(read_foreign_checkpoint, path)
    if not name.startswith("x"):
        first, codes = (path, None) if name == "dict.txt" else (dictionary, path)
        read = partial(read_vocabularies, IMPORTERS["fairseq"], first, dictionary, codes)
    with pytest.raises(DeepwireError, match=f"{name}: .*is not a regular file"):
        read()
