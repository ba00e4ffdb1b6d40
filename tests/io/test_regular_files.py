from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepwire.errors import ModelError, UsageError
from deepwire.io.regular_files import open_for_appending, read_json


@pytest.mark.parametrize("text", ["", "{", "[1]", "nul", "[" * 100_000, "\xff"])
def test_json_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"x\.json"):
        read_json(path)
    with pytest.raises(ModelError, match="cannot read"):
        read_json(tmp_path / "none.json")


def test_links_and_pipes_are_not_written_to(tmp_path: Path) -> None:
    """Whoever may write to a run directory must not decide where else the trainer writes."""
    precious, path = tmp_path / "precious", tmp_path / "log.txt"
    precious.write_text("precious")
    for target in ("precious", "missing", "log.txt"):
        path.symlink_to(target)
        with pytest.raises(UsageError, match=f"log.txt: is a link to {target}"):
            open_for_appending(path)
        path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match=r"log.txt: is a pipe"):
        open_for_appending(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        open_for_appending(path)
    assert precious.read_text() == "precious"
    assert not (tmp_path / "missing").exists()


def test_own_files_keep_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\xff\n")
    with open_for_appending(tmp_path / "x") as file:
        file.seek(0)
        assert file.read() == "a\\xff\n"
        file.write("b\udcff\n")
    assert (tmp_path / "x").read_bytes() == b"a\xff\nb\\udcff\n"
