from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from deepwire.errors import ResourceError, UsageError
from deepwire.io.atomic import (
    disk_errors,
    move_aside,
    new_folder,
    recover,
    write_json,
    write_text,
)
from deepwire.io.output import open_output


def test_a_full_disk_becomes_one_line(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="No space left on device") as caught, disk_errors(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "free some space" in caught.value.hint
    assert str(tmp_path) in caught.value.message


def test_a_name_that_nothing_can_have_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "below", tmp_path / ("a" * 300)):
        with pytest.raises(UsageError, match="cannot be made: ") as caught, new_folder(path):
            pass
        assert caught.value.hint == "name another path"
        with pytest.raises(UsageError, match="cannot be made: "):
            write_text(path, "text")


def fill(folder: Path, text: str) -> None:
    (folder / "a").write_text(text)
    (folder / "sub").mkdir()
    (folder / "sub" / "b").write_text(text)


def content(folder: Path) -> tuple[str, str]:
    return (folder / "a").read_text(), (folder / "sub" / "b").read_text()


def test_an_error_leaves_the_old_folder_and_no_rubbish(tmp_path: Path) -> None:
    with new_folder(tmp_path / "x") as temporary:
        fill(temporary, "1")
    with pytest.raises(UnicodeEncodeError), new_folder(tmp_path / "x") as temporary:
        fill(temporary, "\ud800")
    assert content(tmp_path / "x") == ("1", "1")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_two_that_make_the_same_folder_do_not_mix(tmp_path: Path) -> None:
    with new_folder(tmp_path / "x") as first:
        fill(first, "1")
        with new_folder(tmp_path / "x") as second:
            fill(second, "2")
        assert content(tmp_path / "x") == ("2", "2")
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
            return function(*arguments, **named)

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


def test_a_file_that_could_not_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match="No space left"):
        write_json(tmp_path / "x.json", 1)
    assert not list(tmp_path.iterdir())


def test_moving_aside_never_overwrites(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        (tmp_path / "x").mkdir()
        names.append(move_aside(tmp_path / "x", "damaged").name)
    assert names == ["x.damaged", "x.damaged.2", "x.damaged.3"]
    for number in (1, 2):
        (tmp_path / "x").mkdir()
        assert move_aside(tmp_path / "x") == tmp_path / f"x.{number}"


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


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_another_process_may_look_for_leftovers_before_one_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    target, lock = tmp_path / "made", fcntl.flock
    removed: list[Path] = []

    def late(descriptor: int, operation: int) -> None:
        if not removed:
            for path in tmp_path.glob(".made.*"):
                removed.append(path)
                path.rmdir() if path.is_dir() else path.unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    if kind == "file":
        write_text(target, "text")
    else:
        with new_folder(target) as folder:
            (folder / "a").write_text("text")
    assert removed
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_a_killed_process_left_is_removed_by_the_next_call(tmp_path: Path, kind: str) -> None:
    """What a living one fills stays, and so does whatever has another name."""
    target = tmp_path / "made[1]"

    def make() -> AbstractContextManager[object]:
        return new_folder(target) if kind == "folder" else open_output(target)

    def begin_and_die() -> None:
        with make():
            os.kill(os.getpid(), signal.SIGKILL)

    for name in (".made[1].tmp", ".made1.0a0a0a0a.tmp", ".other.0a0a0a0a.tmp", "made[1].0a0a0a0a.tmp"):
        (tmp_path / name).touch()
    before = set(tmp_path.iterdir())
    process = multiprocessing.get_context("fork").Process(target=begin_and_die)
    process.start()
    process.join()
    (remains,) = set(tmp_path.iterdir()) - before
    with make():
        (held,) = set(tmp_path.iterdir()) - before
        assert held != remains
        with make():
            assert held.exists()
    assert set(tmp_path.iterdir()) - before == {target}
