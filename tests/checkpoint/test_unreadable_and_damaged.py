"""Files that may not be read are not damaged; of damaged ones none is taken for the best."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from permissions import permissions_obeyed

from deepwire.checkpoint.model_files import MANIFEST, DamagedError
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import load_model
from deepwire.errors import ModelError
from deepwire.io.regular_files import UnreadableError

CheckpointMaker = Callable[..., Path]


@pytest.fixture
def mask() -> Iterator[Callable[[int], object]]:
    """Sets the umask until the end of the test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("masked", [0o027, 0o002])
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


Damage = Callable[[Path], object]

DAMAGE: dict[str, Damage] = {
    "truncated": lambda folder: (folder / "state.json").write_text('{"update": 2'),
    "deleted": lambda folder: (folder / "state.json").unlink(),
    "another score": lambda folder: rewrite(folder / "state.json", '"bleu": 30.0', '"bleu": 10.0'),
    "not readable": lambda folder: folder.chmod(0),
    "without manifest": lambda folder: (folder / MANIFEST).unlink(),
}


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def three(run: RunDirectory, checkpoint: CheckpointMaker) -> RunDirectory:
    """A run whose checkpoint at update 200 is the best, by BLEU as by loss."""
    for update, loss, bleu in ((100, 3.0, 20.0), (200, 2.0, 30.0), (300, 2.5, 25.0)):
        checkpoint(update, metric="bleu", loss=loss, bleu=bleu)
    return run


def best(run: RunDirectory) -> Path:
    with permissions_obeyed():
        return find_model(str(run.path))


@pytest.mark.parametrize("kind", DAMAGE)
def test_where_nobody_knows_the_scores_nothing_is_guessed(three: RunDirectory, kind: str) -> None:
    DAMAGE[kind](three.checkpoint_path(200))
    three.index.write_text("{")
    three.resolved_config.write_text('{"training": {"validation": {"metric": "bleu"}}}')
    message = "the best cannot be told, because the scores of update-000200 are unknown: "
    with pytest.raises(ModelError, match=message) as caught:
        best(three)
    assert f"{three.path}@last" in caught.value.hint
    assert find_model(f"{three.path}@last") == three.checkpoint_path(300)


def test_the_metric_is_that_of_the_settings(three: RunDirectory, checkpoint: CheckpointMaker) -> None:
    """By loss another one would be the best."""
    checkpoint(400, metric="bleu", loss=1.0, bleu=1.0)
    for damaged in ('{"metric": "loss"}', "{", "[]", None):
        three.resolved_config.write_text('{"training": {"validation": {"metric": "bleu"}}}')
        if damaged is None:
            three.index.unlink()
        else:
            three.index.write_text(damaged)
        assert best(three) == three.checkpoint_path(200)
    three.resolved_config.write_text("{")
    with pytest.raises(ModelError, match=r"neither config.resolved.json nor checkpoints/index.json"):
        best(three)


def test_a_checkpoint_whose_scores_nobody_knows_is_never_deleted(
    three: RunDirectory, checkpoint: CheckpointMaker
) -> None:
    (three.checkpoint_path(200) / "state.json").write_text("{")
    three.index.unlink()
    for update in (400, 500):
        checkpoint(update, metric="bleu", keep_last=1, bleu=1.0)
    assert [one.update for one in three.checkpoints()] == [200, 300, 500]
