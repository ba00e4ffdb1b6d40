from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from deepwire.checkpoint.files import (
    disk_errors,
    human_bytes,
    new_folder,
    open_own,
    read_json,
    recover,
    set_aside,
    write_json,
    write_text,
)
from deepwire.errors import ModelError, ResourceError, UsageError


class CrashError(BaseException):
    """Stands for the death of the process: nothing but cleanup in ``finally`` may follow."""


def fill(folder: Path, text: str) -> None:
    (folder / "a").write_text(text)
    (folder / "sub").mkdir()
    (folder / "sub" / "b").write_text(text)


def content(folder: Path) -> tuple[str, str]:
    return (folder / "a").read_text(), (folder / "sub" / "b").read_text()


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    with new_folder(tmp_path / "x") as temporary:
        fill(temporary, "1")
        assert not (tmp_path / "x").exists()
    assert content(tmp_path / "x") == ("1", "1")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_error_leaves_the_old_folder_and_no_rubbish(tmp_path: Path) -> None:
    with new_folder(tmp_path / "x") as temporary:
        fill(temporary, "1")
    with pytest.raises(UnicodeEncodeError), new_folder(tmp_path / "x") as temporary:
        fill(temporary, "\ud800")
    assert content(tmp_path / "x") == ("1", "1")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def write_in_child(target: Path, text: str, crash_at: int) -> int:
    """Replace ``target`` in a child that dies at its n-th fsync, rename or removal; its exit status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    calls = [0]

    def dying(function: object) -> object:
        def call(*arguments: object, **named: object) -> object:
            calls[0] += 1
            if calls[0] == crash_at:
                os._exit(9)
            return function(*arguments, **named)  # type: ignore[operator]

        return call

    try:
        for name in ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir"):
            setattr(os, name, dying(getattr(os, name)))
        with new_folder(target) as temporary:
            fill(temporary, text)
        os._exit(0)
    finally:
        os._exit(99)


def test_a_crash_at_any_moment_leaves_the_old_or_the_new_folder(tmp_path: Path) -> None:
    target = tmp_path / "x"
    with new_folder(target) as temporary:
        fill(temporary, "0")
    moment, seen = 1, set()
    while True:
        ended = write_in_child(target, str(moment), moment)
        recover(tmp_path)
        first, second = content(target)
        assert first == second
        seen.add(first == str(moment))
        assert [path.name for path in tmp_path.iterdir()] == ["x"]
        if ended == 0:
            break
        assert os.waitstatus_to_exitcode(ended) == 9
        moment += 1
    assert moment > 8
    assert seen == {False, True}


def test_json_is_replaced_in_one_step(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": "ü", "b": 0.1})
    assert read_json(tmp_path / "x.json") == {"a": "ü", "b": 0.1}
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert read_json(tmp_path / "x.json")["b"] == 0.1


@pytest.mark.parametrize("text", ["", "{", "[1]", "nul", "[" * 100_000, "\xff"])
def test_json_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"x\.json"):
        read_json(path)
    with pytest.raises(ModelError, match="cannot read"):
        read_json(tmp_path / "none.json")


def test_a_full_disk_becomes_one_line(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="No space left on device") as caught, disk_errors(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "free some space" in caught.value.hint
    assert str(tmp_path) in caught.value.message


def test_a_folder_that_is_a_file_becomes_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="Not a directory"):
        write_text(tmp_path / "file" / "x", "text")


def test_setting_aside_never_overwrites(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        (tmp_path / "x").mkdir()
        names.append(set_aside(tmp_path / "x", "damaged").name)
    assert names == ["x.damaged", "x.damaged.2", "x.damaged.3"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (3_100_000_000, "3.1 GB"), (2e15, "2000.0 TB")]
)
def test_bytes_as_people_read_them(count: float, text: str) -> None:
    assert human_bytes(count) == text


def test_links_and_pipes_are_not_written_to(tmp_path: Path) -> None:
    """Whoever may write to a run directory must not decide where else the trainer writes."""
    precious, path = tmp_path / "precious", tmp_path / "log.txt"
    precious.write_text("precious")
    for target in ("precious", "missing", "log.txt"):
        path.symlink_to(target)
        with pytest.raises(UsageError, match=f"log.txt: is a link to {target}"):
            open_own(path)
        path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match=r"log.txt: is a pipe"):
        open_own(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        open_own(path)
    assert precious.read_text() == "precious"
    assert not (tmp_path / "missing").exists()


def test_leftovers_that_are_links_lead_nowhere(tmp_path: Path) -> None:
    """The names of temporary files and folders can be guessed."""
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("precious")
    for again in range(2):
        (tmp_path / ".x.json.tmp").symlink_to("file")
        write_json(tmp_path / "x.json", again)
        for name in (".x.tmp", ".x.old", ".y.delete"):
            (tmp_path / name).symlink_to("folder")
        with new_folder(tmp_path / "x") as temporary:
            fill(temporary, "1")
        recover(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "x", "x.json"]
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "a").read_text() == "precious"


def test_own_files_keep_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\xff\n")
    with open_own(tmp_path / "x") as file:
        file.seek(0)
        assert file.read() == "a\\xff\n"
        file.write("b\udcff\n")
    assert (tmp_path / "x").read_bytes() == b"a\xff\nb\\udcff\n"
