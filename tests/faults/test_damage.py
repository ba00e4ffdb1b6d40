"""Damaged, foreign and changed files: named, refused, and never in the way of what is sound."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from one_process import UPDATES, Trainer, same_as_straight
from test_store import Payload
from toy_run import digests

from deepwire.checkpoint.model_files import write_manifest

Damage = Callable[[Path], object]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Damage, str]] = {
    "a flipped byte of the moments": (
        lambda folder: flip(folder / "optimizer.safetensors"),
        "optimizer.safetensors: digest differs",
    ),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "manifest.json: missing"),
}


@pytest.fixture(scope="module")
def half(trainer: Trainer) -> Path:
    """A run that stopped half-way, with checkpoints at updates 5 and 10."""
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
    assert "; using update-000005" in trainer.text()
    assert "continued from update-000005" in trainer.text()
    assert same_as_straight(trainer, name)
    assert (run.checkpoints_folder / "update-000010.damaged").is_dir()


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


@pytest.mark.parametrize("index_too", [False, True])
def test_where_all_are_gone_the_records_stay(trainer: Trainer, half: Path, index_too: bool) -> None:
    run = trainer.run_directory(f"emptied-{index_too}")
    shutil.copytree(half, run.path)
    for one in run.checkpoints():
        shutil.rmtree(one.path)
    if index_too:
        shutil.rmtree(run.checkpoints_folder)
    before = run.metrics.read_bytes()
    assert trainer.train(run.path.name) == 4
    assert "the checkpoints of this run are gone" in trainer.text()
    assert "hint: put them back, or start over with --fresh" in trainer.text()
    assert run.metrics.read_bytes() == before
    assert trainer.train(run.path.name, "--fresh", "training.max_updates=1") == 0, trainer.text()
    assert (run.path.with_name(f"{run.path.name}.1") / "metrics.jsonl").read_bytes() == before


OWN_FILES: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "truncated decisions": ("env.json", lambda text: text[:40]),
    "no decisions": ("env.json", lambda _: None),
    "other decisions": ("env.json", lambda _: "{}"),
    "odd digests": ("env.json", lambda text: text.replace('"digests"', '"digestz"')),
    "odd numbers": ("env.json", lambda text: text.replace('"fp32"', '"fp31"')),
    "odd size": ("env.json", lambda text: text.replace('"micro_batch_tokens": ', '"micro_batch_tokens": -')),
    "truncated settings": ("config.resolved.json", lambda text: text[:40]),
    "no settings": ("config.resolved.json", lambda _: None),
}


@pytest.mark.parametrize("kind", OWN_FILES)
def test_what_a_run_cannot_go_on_without_is_named_with_what_is_left_to_do(
    trainer: Trainer, half: Path, kind: str
) -> None:
    name, damage = OWN_FILES[kind]
    run = trainer.run_directory(kind.replace(" ", "-"))
    shutil.copytree(half, run.path)
    path, checkpoints = run.path / name, sorted(run.checkpoints_folder.iterdir())
    before = path.read_text()
    text = damage(before)
    assert text != before
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert trainer.train(run.path.name) == 4, trainer.text()
    assert f"error: {path}: " in trainer.text()
    assert f"hint: put back a copy of {name}, or begin another run with these weights" in trainer.text()
    assert f"training.start_from={run.path}@last" in trainer.text()
    assert trainer.text().count("error: ") == 1
    assert sorted(run.checkpoints_folder.iterdir()) == checkpoints


def lines_of(name: str, *numbers: int, text: str = "\x00") -> Damage:
    """Overwrites lines of a file of a run."""

    def damage(run: Path) -> None:
        lines = (run / name).read_text().split("\n")
        for number in numbers:
            lines[number - 1] = text
        (run / name).write_text("\n".join(lines))

    return damage


METRICS: dict[str, tuple[Damage, str]] = {
    "missing": (
        lambda run: (run / "metrics.jsonl").unlink(),
        "warning: metrics.jsonl is missing: its records so far are lost\n",
    ),
    "damaged": (
        lines_of("metrics.jsonl", 2, 4),
        "",
    ),
}


@pytest.mark.parametrize("kind", METRICS)
def test_records_that_are_lost_are_missed(trainer: Trainer, half: Path, kind: str) -> None:
    damage, said = METRICS[kind]
    run = trainer.run_directory(f"metrics-{kind.replace(' ', '-')}")
    shutil.copytree(half, run.path)
    damage(run.path)
    assert trainer.train(run.path.name) == 0, trainer.text()
    assert said in trainer.text()
    assert digests(run, UPDATES) == digests(trainer.run_directory("straight"), UPDATES)


def test_a_state_that_makes_no_sense_is_damage_too(trainer: Trainer, half: Path) -> None:
    """Also where the manifest was made to fit."""
    run = trainer.run_directory("absurd")
    shutil.copytree(half, run.path)
    folder = run.checkpoint_path(UPDATES // 2)
    state = json.loads((folder / "state.json").read_text())
    state["position"]["epoch"] = 10**18
    (folder / "state.json").write_text(json.dumps(state))
    write_manifest(folder)
    assert trainer.train("absurd") == 0, trainer.text()
    assert f"checkpoint {folder} is damaged (state.json: the stored training state" in trainer.text()
    assert "continued from update-000005" in trainer.text()
    assert same_as_straight(trainer, "absurd")


def test_a_state_of_a_newer_version_is_not_moved_aside(trainer: Trainer, half: Path) -> None:
    run = trainer.run_directory("newer")
    shutil.copytree(half, run.path)
    folder = run.checkpoint_path(UPDATES // 2)
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "mood": "good"}))
    write_manifest(folder)
    assert trainer.train("newer") == 4
    assert f"error: {folder / 'state.json'}: mood: unknown to this version" in trainer.text()
    assert folder.is_dir()


def test_a_link_in_a_run_directory_is_not_written_through(
    trainer: Trainer, half: Path, tmp_path: Path
) -> None:
    run, precious = trainer.run_directory("linked"), tmp_path / "precious"
    shutil.copytree(half, run.path)
    before = {path.name: path.read_bytes() for path in run.checkpoints_folder.rglob("*") if path.is_file()}
    precious.write_text("precious")
    for name in ("lock", "log.txt", "metrics.jsonl", "gradients.jsonl", "depth_weights.jsonl"):
        path = run.path / name
        whole = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        path.symlink_to(precious)
        assert trainer.train("linked", "training.record={gradients: 1}") == 2, trainer.text()
        assert f"error: {path}: is a link to {precious}" in trainer.text()
        assert precious.read_text() == "precious"
        path.unlink()
        if whole is not None:
            path.write_bytes(whole)
    after = {path.name: path.read_bytes() for path in run.checkpoints_folder.rglob("*") if path.is_file()}
    assert after == before


def test_a_damaged_model_and_pickle_are_refused(trainer: Trainer, half: Path, tmp_path: Path) -> None:
    damaged, disguised, canary = tmp_path / "damaged", tmp_path / "disguised", tmp_path / "canary"
    for model in (damaged, disguised):
        shutil.copytree(half / "checkpoints" / "update-000010", model)
    flip(damaged / "model.safetensors")
    (disguised / "model.safetensors").write_bytes(pickle.dumps(Payload(canary)))
    write_manifest(disguised)
    for model, said in (
        (damaged, f"{damaged} is damaged (model.safetensors: digest"),
        (disguised, "safetensors"),
    ):
        assert trainer.command("translate", str(model), "--input", str(trainer.folder / "valid.src")) == 4
        assert said in trainer.text()
        assert trainer.text().count("error: ") == 1
        assert "Traceback" not in trainer.text()
    assert not canary.exists()


def test_other_text_settings_and_vocabulary_are_refused_with_a_list(
    trainer: Trainer, half: Path, tmp_path: Path
) -> None:
    run = trainer.run_directory("half")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    text = (trainer.folder / "train.src").read_text()
    for name, content in (("train.src", "y" + text[1:]), ("train.trg", None)):
        (tmp_path / name).write_text(content or (trainer.folder / name).read_text())
    cases = {
        f"data.train={tmp_path / 'train'}": ["text of data.train or data.valid: "],
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
