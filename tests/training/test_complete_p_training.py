"""Training with CompleteP: its rates, its exact continuation, and what its checkpoints hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from toy_run import digests, run_file, write_corpus

import deepwire
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.training.loop import UpdateResult
from deepwire.training.session import Callback, TrainingSession

WIDE = {
    "d_model": 32,
    "heads": 4,
    "encoder": {"layers": 2},
    "decoder": {"layers": 2},
    "parametrization": {"base": {"d_model": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}},
}
SAME = {"parametrization": {"base": {"d_model": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}}}
Train = Callable[..., RunDirectory]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Trains the toy run with other settings of the model: `train("name", WIDE)`."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path, {"train": 120, "valid": 10})
    schedule = {"type": "constant", "peak": 0.01}
    (tmp_path / "toy.yaml").write_text(
        run_file(max_updates=8, validation={"every": 4}, optimizer={"weight_decay": 0.01}, schedule=schedule)
    )

    def run(name: str, model: Mapping[str, object], *callbacks: Callback, **training: object) -> RunDirectory:
        place = str(tmp_path / name)
        deepwire.train("toy.yaml", callbacks=callbacks, quiet=True, run=place, model=model, training=training)
        return RunDirectory(tmp_path / name)

    return run


def test_the_base_trains_as_without(train: Train) -> None:
    """But for decay: norms and biases have none."""
    plain = digests(train("plain", {"initialization": "xavier"}, optimizer={"weight_decay": 0.0}), 8)
    assert digests(train("base", SAME, optimizer={"weight_decay": 0.0}), 8) == plain


def test_the_schedule_of_the_base_is_taken(train: Train) -> None:
    """Noam's rates fall with the width of the model; those of a wide one are those of its base."""
    rates = []

    class Note(Callback):
        def after_update(self, session: TrainingSession, update: UpdateResult) -> None:
            rates.append(update.learning_rate)

    schedule = {"type": "noam", "warmup": 4}
    train("wide", WIDE, Note(), max_updates=1, schedule=schedule)
    train("base", {}, Note(), max_updates=1, schedule=schedule)
    assert rates[0] == rates[1]
