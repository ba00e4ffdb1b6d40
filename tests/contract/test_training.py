"""Ten systems of the papers have the losses that they had, whatever they are built of now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from contract_runs import SAME, SYSTEMS, stored, succeed, train_system, write_text

import deepwire


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("training")
    write_text(path)
    return path


def test_the_stored_systems_are_these() -> None:
    assert list(stored("losses")) == list(SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_thirty_updates_have_the_known_losses(folder: Path, system: str) -> None:
    found, known = train_system(system, folder), stored("losses")[system]
    assert found["update"] == known["update"]
    assert found["loss"] == pytest.approx(known["loss"], rel=SAME)
    assert found["validation_loss"] == pytest.approx(known["validation_loss"], rel=SAME)
    assert found["gradient_norm"] == pytest.approx(known["gradient_norm"], rel=10 * SAME)
    assert found["learned"] > 0.5, "nats a token by which the loss has fallen"


def test_the_command_and_python_train_alike(folder: Path) -> None:
    """Also: what a run directory has."""
    numbers = train_system("dlcl", folder)
    succeed("train", "dlcl.yaml", "run=by-command", cwd=folder)
    by_command = deepwire.Run(folder / "by-command")
    losses = [record["loss"] for record in by_command.history if record["kind"] == "train"]
    assert losses == numbers["loss"]
    assert by_command.best.scores["loss"] == min(numbers["validation_loss"])
    names = {path.name for path in by_command.path.iterdir()}
    assert names >= {"config.yaml", "config.resolved.json", "env.json", "metrics.jsonl", "log.txt", "DONE"}
    index = json.loads((by_command.path / "checkpoints/index.json").read_text())
    assert (index["best"], index["last"]) == ("update-000030", "update-000030")
    model = {path.name for path in (by_command.path / "checkpoints/update-000030").iterdir()}
    assert model >= {"config.json", "manifest.json", "model.safetensors", "optimizer.safetensors"}
    assert model >= {"state.json", "vocabulary"}
