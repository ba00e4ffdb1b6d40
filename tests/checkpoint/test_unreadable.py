"""Files that cannot be read are not damaged files: they are named, and nothing is moved."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from permissions import permissions_obeyed

from deepwire.checkpoint.model_files import DamagedError
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import load_model
from deepwire.io.regular_files import UnreadableError

CheckpointMaker = Callable[..., Path]


@pytest.fixture
def mask() -> Iterator[Callable[[int], object]]:
    """Sets the umask until the end of the test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("masked", [0o022, 0o027, 0o077, 0o002])
def test_permissions_follow_the_umask(
    run: RunDirectory, checkpoint: CheckpointMaker, mask: Callable[[int], object], masked: int
) -> None:
    mask(masked)
    folder = checkpoint(100)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"model.safetensors", "optimizer.safetensors"} <= {path.name for path in files}
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in files} == {oct(0o666 & ~masked)}


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]
)
def test_a_file_that_may_not_be_read_is_no_damage(
    run: RunDirectory, checkpoint: CheckpointMaker, name: str
) -> None:
    for update in (300, 400):
        checkpoint(update)
    secret = run.checkpoint_path(400) / name
    secret.chmod(0)
    before = sorted(path.name for path in run.checkpoints_folder.iterdir())
    with (
        permissions_obeyed(),
        pytest.raises(UnreadableError, match="cannot read: Permission denied") as caught,
    ):
        run.newest_sound(lambda _: None)
    assert str(secret) in caught.value.message
    assert "may read it" in caught.value.hint
    assert "fresh" not in caught.value.hint
    assert sorted(path.name for path in run.checkpoints_folder.iterdir()) == before


@pytest.mark.parametrize("folder", ["", "checkpoints", "checkpoints/update-000400"])
def test_a_folder_that_may_not_be_read_is_no_missing_run(
    run: RunDirectory, checkpoint: CheckpointMaker, folder: str
) -> None:
    """A new run must not begin where the old one cannot be seen."""
    checkpoint(400)
    for mode in (0o000, 0o600):
        (run.path / folder).chmod(mode)
        with permissions_obeyed(), pytest.raises(UnreadableError, match="Permission denied"):
            run.newest_sound(lambda _: None)
        with permissions_obeyed(), pytest.raises(UnreadableError, match="Permission denied"):
            load_model(find_model(str(run.path)))
        (run.path / folder).chmod(0o755)


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "manifest.json", "vocabulary/more"])
def test_a_pipe_in_a_checkpoint_is_damage_and_is_not_waited_for(
    run: RunDirectory, checkpoint: CheckpointMaker, name: str
) -> None:
    for update in (300, 400):
        checkpoint(update)
    path = run.checkpoint_path(400) / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(DamagedError, match=f"{name}: is not a regular file"):
        load_model(path.parents[name.count("/")])
    assert run.newest_sound(lambda _: None).update == 300
