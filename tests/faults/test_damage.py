"""Damaged, foreign and changed files: named, refused, and never in the way of what is sound."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from one_process import UPDATES, Trainer, same_as_straight

from deepwire.checkpoint.manifest import write_manifest

Damage = Callable[[Path], object]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGE: dict[str, tuple[Damage, str]] = {
    "a flipped byte of the weights": (
        lambda folder: flip(folder / "model.safetensors"),
        "model.safetensors: digest differs",
    ),
    "a flipped byte of the moments": (
        lambda folder: flip(folder / "optimizer.safetensors"),
        "optimizer.safetensors: digest differs",
    ),
    "truncated weights": (lambda folder: truncate(folder / "model.safetensors"), "model.safetensors: "),
    "no state": (lambda folder: (folder / "state.json").unlink(), "state.json: missing"),
    "no vocabulary": (lambda folder: shutil.rmtree(folder / "vocabulary"), "vocabulary/"),
    "an empty manifest": (
        lambda folder: (folder / "manifest.json").write_text(""),
        "manifest.json: cannot be read",
    ),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "manifest.json: missing"),
}


@pytest.fixture(scope="module")
def half(trainer: Trainer) -> Path:
    """A run that stopped half-way, with checkpoints at updates 10, 15 and 20."""
    limits = (f"training.max_updates={UPDATES // 2}", "training.checkpoint.keep_last=3")
    assert trainer.train("half", *limits) == 0, trainer.text()
    return trainer.run_directory("half").path


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    trainer: Trainer, half: Path, kind: str
) -> None:
    damage, reason = DAMAGE[kind]
    name = kind.replace(" ", "-")
    run = trainer.run_directory(name)
    shutil.copytree(half, run.path)
    damage(run.checkpoint_path(UPDATES // 2))
    assert trainer.train(name) == 0, trainer.text()
    assert f"checkpoint {run.checkpoint_path(UPDATES // 2)} is damaged ({reason}" in trainer.text()
    assert "; using update-000015" in trainer.text()
    assert "continued from update-000015" in trainer.text()
    assert same_as_straight(trainer, name)
    assert (run.checkpoints_folder / "update-000020.damaged").is_dir()


def test_where_all_are_damaged_nothing_is_lost(trainer: Trainer, half: Path) -> None:
    run = trainer.run_directory("ruined")
    shutil.copytree(half, run.path)
    for one in run.checkpoints():
        flip(one.path / "model.safetensors")
    before = sorted(path.name for path in run.checkpoints_folder.iterdir())
    assert trainer.train("ruined") == 4
    assert "every checkpoint is damaged" in trainer.text()
    assert "hint: start over with --fresh" in trainer.text()
    assert sorted(path.name for path in run.checkpoints_folder.iterdir()) == before


@pytest.mark.parametrize(
    "kind", [kind for kind in DAMAGE if kind not in ("no state", "a flipped byte of the moments")]
)
def test_a_damaged_model_is_refused(trainer: Trainer, half: Path, tmp_path: Path, kind: str) -> None:
    damage, reason = DAMAGE[kind]
    model = tmp_path / "model"
    shutil.copytree(half / "checkpoints" / "update-000020", model)
    damage(model)
    assert trainer.command("translate", str(model), "--input", str(trainer.folder / "valid.src")) == 4
    assert f"error: {model} is damaged ({reason}" in trainer.text()
    assert "Traceback" not in trainer.text()


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.canary,)


def test_pickle_is_never_opened(trainer: Trainer, half: Path, tmp_path: Path) -> None:
    canary, file = tmp_path / "canary", tmp_path / "model.pt"
    file.write_bytes(pickle.dumps(Payload(canary)))
    disguised = tmp_path / "disguised"
    shutil.copytree(half / "checkpoints" / "update-000020", disguised)
    shutil.copy(file, disguised / "model.safetensors")
    write_manifest(disguised)
    for place in (file, disguised):
        assert trainer.command("translate", str(place), "--input", str(trainer.folder / "valid.src")) == 4
        assert "Traceback" not in trainer.text()
    assert not canary.exists()


def absurd_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")


def absurd_shape(folder: Path) -> None:
    entry = {"w": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4 * 10**18]}}
    header = json.dumps(entry).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def climbing_name(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../outside"] = manifest["files"]["config.json"]
    (folder / "manifest.json").write_text(json.dumps(manifest))


def link_outside(folder: Path) -> None:
    shutil.move(folder / "config.json", folder.parent / "outside")
    (folder / "config.json").symlink_to(folder.parent / "outside")


@pytest.mark.parametrize("attack", [absurd_header, absurd_shape, climbing_name, link_outside])
def test_hostile_models_are_refused(trainer: Trainer, half: Path, tmp_path: Path, attack: Damage) -> None:
    model = tmp_path / "model"
    shutil.copytree(half / "checkpoints" / "update-000020", model)
    attack(model)
    if attack in (absurd_header, absurd_shape):
        write_manifest(model)
    assert trainer.command("translate", str(model), "--input", str(trainer.folder / "valid.src")) == 4
    assert trainer.text().count("error: ") == 1
    assert "Traceback" not in trainer.text()


def test_other_text_settings_and_vocabulary_are_refused_with_a_list(
    trainer: Trainer, half: Path, tmp_path: Path
) -> None:
    run = trainer.run_directory("half")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    text = (trainer.folder / "train.src").read_text()
    for name, content in (("train.src", "y" + text[1:]), ("train.trg", None)):
        (tmp_path / name).write_text(content or (trainer.folder / name).read_text())
    cases = {
        f"data.train={tmp_path / 'train'}": ["text: "],
        "data.vocabulary.size=30": ["data.vocabulary.size: 40 -> 30"],
        "model.d_model=32 model.encoder.layers=2 seed=4": [
            "model.d_model: 16 -> 32; ",
            "model.encoder.layers: 1 -> 2; ",
            "seed: 3 -> 4",
        ],
    }
    for settings, messages in cases.items():
        assert trainer.train("half", *settings.split()) == 2, trainer.text()
        assert all(message in trainer.text() for message in messages), trainer.text()
        assert trainer.text().count("error: ") == 1
    ignored = {run.path / "lock", run.log}
    after = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert {path for path in after if after[path] != before.get(path)} <= ignored
