from __future__ import annotations

import errno
import gzip
import lzma
import os
import stat
import subprocess
import sys
import threading

import pytest

from deepwire.errors import UsageError
from deepwire.io import output
from deepwire.io.output import check_output, open_output, write_output


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


def test_the_file_behind_stdin_is_not_replaced(tmp_path):
    """``deepwire translate RUN -o FILE < FILE``: the shell opened it, so no argument names it as read."""
    path, other = tmp_path / "text", tmp_path / "other"
    path.write_text("old")
    other.write_text("old")
    before = os.dup(0)
    try:
        with path.open("rb") as text:
            os.dup2(text.fileno(), 0)
        with pytest.raises(UsageError, match="text: is a text that is read, and would be replaced"):
            check_output(path, [output.STDOUT])
        check_output(path)
        check_output(other, [output.STDOUT])
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_settings_are_not_replaced(tmp_path):
    """A run file may extend others, a plan names more: no command writes over YAML, read or not."""
    path = tmp_path / "base.yaml"
    check_output(path)
    path.write_text("seed: 1")
    with pytest.raises(UsageError, match=r"base.yaml: holds settings, and would be replaced"):
        check_output(path)


def test_a_whole_text_keeps_links_and_pipes(tmp_path):
    (tmp_path / "real").write_text("old")
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "real")
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    for path in (link, pipe):
        write_output(path, "new")
    reader.join(5)
    assert read == ["new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_folder_that_may_not_be_written_is_a_wrong_output(tmp_path, monkeypatch):
    def forbidden(*_arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:  # a user with all rights finds no such folder
        patch.setattr(os, "open", forbidden)
        with pytest.raises(UsageError, match="out: cannot write: Permission denied"):
            write_output(tmp_path / "out", "text")
    monkeypatch.setattr(os, "access", lambda folder, _mode: folder != tmp_path)
    with pytest.raises(UsageError, match=f"out: cannot write: no new file may be made in {tmp_path}"):
        check_output(tmp_path / "out")
    os.mkfifo(tmp_path / "pipe")
    check_output(tmp_path / "pipe")


def test_the_stdout_of_the_shell_is_not_replaced(tmp_path):
    """`--output /dev/stdout >> FILE` must add to the file, not replace it."""
    target = tmp_path / "log"
    target.write_text("before\n")
    code = "import pathlib; from deepwire.io import output as o; "
    code += "o.write_output(pathlib.Path('/proc/self/fd/1'), 'text\\n')"
    with target.open("a") as appended:
        subprocess.run([sys.executable, "-c", code], stdout=appended, check=True)
    assert target.read_text() == "before\ntext\n"
