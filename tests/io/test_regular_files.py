from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deepwire.errors import ModelError, UsageError
from deepwire.io.regular_files import acquire_lock, open_for_appending, read_json


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


def never_busy(holder: str) -> None:
    raise AssertionError(holder)


def test_the_holder_is_named_to_whoever_comes_second(tmp_path: Path) -> None:
    class BusyError(Exception):
        pass

    def give_up(holder: str) -> None:
        raise BusyError(holder)

    with acquire_lock(tmp_path / "lock", never_busy):
        for _ in range(2):  # the first refusal leaves the text of the holder as it is
            with pytest.raises(BusyError, match=f"^pid {os.getpid()} on host {socket.gethostname()}$"):
                acquire_lock(tmp_path / "lock", give_up)
    acquire_lock(tmp_path / "lock", never_busy).close()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Who took the lock, and is dead; and its forked child, which holds it until it is killed."""
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        _lock = acquire_lock(tmp_path / "lock", never_busy)
        if second := os.fork():
            os.write(writer, b"%d" % second)
            os._exit(0)
        os.close(reader)
        signal.alarm(60)
        signal.pause()
        os._exit(0)
    os.waitpid(first, 0)
    second = int(os.read(reader, 20))
    os.close(reader)
    os.close(writer)
    yield first, second
    with suppress(ProcessLookupError):
        os.kill(second, signal.SIGKILL)


def test_a_forked_child_goes_on_holding_and_is_waited_for(tmp_path: Path, holder: tuple[int, int]) -> None:
    """Processes of one training hold its folder together, also when the one that took the lock has died."""
    (first, second), path, heard = holder, tmp_path / "lock", []

    def tell_and_end(text: str) -> None:
        heard.append(text)
        os.kill(second, signal.SIGKILL)

    with acquire_lock(path, tell_and_end):
        assert heard == [f"pid {first} on host {socket.gethostname()}"]
        assert path.read_text() == f"pid {os.getpid()} on host {socket.gethostname()}\n"
