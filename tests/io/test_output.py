from __future__ import annotations

import errno
import gzip
import lzma
import os
import stat
from pathlib import Path

import pytest

from deepwire.errors import UsageError
from deepwire.io import output
from deepwire.io.output import check_output, open_output


def test_the_file_appears_only_when_complete(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o640)
    with open_output(path) as out:
        out.write("neu ü\n")
        out.flush()
        assert path.read_text() == "old"
    assert path.read_bytes() == "neu ü\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")

    def fail():
        with open_output(path) as out:
            out.write("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def unpack_zstd(packed):
    zstandard = pytest.importorskip("zstandard")
    with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
        return stream.read()


@pytest.mark.parametrize(
    ("ending", "unpack"), [(".gz", gzip.decompress), (".xz", lzma.decompress), (".zst", unpack_zstd)]
)
def test_compressed_by_its_ending_with_the_same_bytes_each_time(tmp_path, ending, unpack):
    paths = [tmp_path / f"{name}{ending}" for name in ("one", "two")]
    for path in paths:
        with open_output(path) as out:
            out.write("neu ü\n" * 1000)
    assert unpack(paths[0].read_bytes()) == "neu ü\n".encode() * 1000
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].stat().st_size < 500

    def fail():
        with open_output(paths[0]) as out:
            out.write("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    def fill():
        with open_output(tmp_path / "out"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        fill()
    assert caught.value.filename == str(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_zstd_without_its_package_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"out.zst: writing zstd needs the package zstandard"):
        check_output(tmp_path / "out.zst")


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    link = tmp_path / "link.gz"
    link.symlink_to(tmp_path / "real")
    with open_output(link) as out:
        out.write("new")
    assert link.is_symlink()
    assert gzip.decompress((tmp_path / "real").read_bytes()) == b"new"


def test_devices_are_written_directly():
    with open_output(Path(os.devnull)) as out:
        out.write("gone")
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize(("name", "message"), [("", "is a directory"), ("no/out", "does not exist")])
def test_wrong_places(tmp_path, name, message):
    with pytest.raises(UsageError, match=message), open_output(tmp_path / name):
        pass
