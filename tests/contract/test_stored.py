"""What 0.2.0 wrote is read, continued and translated as it was; parameters have the names they had."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from contract_runs import SAME, STORED, command, digests, stored, succeed
from contract_shapes import outline_of_recipe, outline_of_settings, types_of
from contract_texts import CERTAIN, OLD, continued, copy_of_old, translated

import deepwire

PARAMETERS = stored("parameters")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return copy_of_old(tmp_path)


@pytest.mark.parametrize("model", ["model", "run", "run@best", "run@update-400"])
def test_an_old_model_says_what_it_said(old: Path, model: str) -> None:
    found, known = translated(old, model=model), stored("texts")["beam"]
    assert len(known) == CERTAIN
    assert [text for text, *_ in found] == [text for text, *_ in known]
    assert [score for _, score, _ in found] == pytest.approx([score for _, score, _ in known], rel=SAME)


def test_an_old_run_goes_on_where_it_was(old: Path) -> None:
    files = {path: path.read_bytes() for path in (old / "prepared").rglob("*") if path.is_file()}
    assert continued(old) == pytest.approx(stored("texts")["continued"], rel=SAME)
    text = {path: path.read_bytes() for path in files}
    assert text == files, "prepared text of 0.2.0 was used as it was"
    run = deepwire.Run(old / "run")
    assert run.history[0]["update"] == 1
    assert run.history[-1]["update"] == 410
    assert (old / "run/checkpoints/update-000410/model.safetensors").exists()


def test_an_old_run_continues_bit_for_bit_after_a_stop(old: Path) -> None:
    shutil.copytree(old / "run", old / "other")
    for limits, run in (((405, 410), "run"), ((410,), "other")):
        for limit in limits:
            succeed("train", "run.yaml", f"run={run}", f"training.max_updates={limit}", "-q", cwd=old)
    assert digests(old / "run", 410) == digests(old / "other", 410)


def test_old_prepared_text_needs_no_preparing(old: Path) -> None:
    """Also where only the prepared text is left to train a new run from."""
    before = {
        path.relative_to(old): path.read_bytes() for path in old.glob("prepared/*/**/*") if path.is_file()
    }
    prepared = deepwire.prepare(old / "run.yaml")
    assert len(prepared.train) == len((old / "text.de").read_text().splitlines())
    after = {
        path.relative_to(old): path.read_bytes() for path in old.glob("prepared/*/**/*") if path.is_file()
    }
    assert after == before


def test_old_settings_and_records_are_read(old: Path) -> None:
    run = deepwire.Run(old / "run")
    assert run.stop_reason is not None
    assert run.best.scores["loss"] == pytest.approx(0.8806, rel=SAME)
    assert run.settings["model"]["decoder"]["connection"]["type"] == "depth_lstm"
    record = json.loads(succeed("inspect", "run", "--json", cwd=old))
    assert record["parameters"] == 37835 == sum(record["parts"].values())


def test_a_damaged_model_is_refused(old: Path) -> None:
    weights = old / "model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9] + b"\0" * 9)
    done = command("translate", "model", cwd=old, stdin="Ein Hund.\n")
    assert done.returncode == 4
    assert "model.safetensors" in done.stderr


def test_the_stored_files_are_small() -> None:
    assert sum(path.stat().st_size for path in STORED.rglob("*") if path.is_file()) < 1_000_000
    assert (OLD / "run/checkpoints/update-000400/optimizer.safetensors").exists()


@pytest.mark.parametrize("part", range(4))
def test_recipes_have_the_parameters_that_they_had(part: int) -> None:
    known = dict(list(PARAMETERS["recipes"].items())[part::4])
    assert {name: outline_of_recipe(name) for name in known} == known


def test_choices_have_the_parameters_that_they_had() -> None:
    known = PARAMETERS["settings"]
    assert {settings: outline_of_settings(settings) for settings in known} == known


def test_all_recipes_are_listed(tmp_path: Path) -> None:
    lines = succeed("recipes", cwd=tmp_path).splitlines()
    listed = {line.split()[0] for line in lines if line.strip()}
    assert set(PARAMETERS["recipes"]) <= listed
    assert len(PARAMETERS["recipes"]) == 260


@pytest.fixture(scope="module")
def schema() -> object:
    """Of a process of its own: tests before this one may have registered choices of other packages."""
    command = [sys.executable, "-m", "deepwire", "schema"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("socket", ["mixer", "connection", "aggregation", "fusion"])
def test_all_choices_of_a_socket_are_stored(schema: object, socket: str) -> None:
    known = set()
    for text in PARAMETERS["settings"]:
        settings = json.loads(text)
        known |= {
            settings[side][socket]["type"]
            for side in ("encoder", "decoder")
            if socket in settings.get(side, {})
        }
    defaults = {"mixer": "self_attention", "connection": "pre_norm", "aggregation": "last", "fusion": "top"}
    offered = set(types_of(schema, socket))
    assert offered >= known | {defaults[socket]}
    assert offered - known <= {defaults[socket], "rnmt"}


def test_recipes_have_the_printed_sizes(tmp_path: Path) -> None:
    out = succeed("recipes", "check", "papers/dlcl-2019", "--json", cwd=tmp_path)
    assert len(out.splitlines()) >= 2
