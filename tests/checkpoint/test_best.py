"""The best checkpoint of a run with damaged files: the same as before or an error, but no other one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from permissions import permissions_obeyed

from deepwire.checkpoint.model_files import MANIFEST
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.errors import ModelError

CheckpointMaker = Callable[..., Path]
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
