"""Recipes of figures: short names of the settings that a figure varies."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepwire import recipes
from deepwire.api.prepare import load_settings
from deepwire.cli.main import main
from deepwire.errors import UsageError
from deepwire.recipes.notes import read_note
from deepwire.runfile import LoadedRunFile, RunFile, load_run_file

DLCL = "papers/dlcl-2019/dlcl-pre-depth-sweep"
GROUPS = "papers/gtrans-2022/iwslt14-gtrans-60-6-group-sweep"

SWEEP = """
recipe:
  description: a small model
  parameters: {{depth: {{sets: [model.encoder.layers, model.decoder.layers], values: {values}}}}}
data: {{source: de, target: en, train: corpus, vocabulary: {{type: bpe, size: 40}}}}
model: {{d_model: 16, heads: 4, feed_forward: 24, encoder: {{layers: 1}}, decoder: {{layers: 1}}}}
"""


def at(loaded: LoadedRunFile, key: str) -> object:
    node: object = loaded.resolved
    for part in key.split("."):
        assert isinstance(node, dict)
        node = node[part]
    return node


def with_parameters() -> list[str]:
    return [name for name in recipes.names() if read_note(name).parameters]


@pytest.mark.parametrize("name", with_parameters())
def test_every_value_of_a_figure_takes_effect(name: str) -> None:
    default = load_run_file(name)
    for key, parameter in read_note(name).parameters.items():
        assert at(default, parameter.sets[0]) in parameter.values, "what it is without a value"
        for value in parameter.values:
            loaded = load_run_file(name, [f"{key}={value}"])
            assert {at(loaded, target) for target in parameter.sets} == {value}


def test_figures_have_recipes() -> None:
    assert {name.split("/")[1] for name in with_parameters()} >= {"dlcl-2019", "gtrans-2022"}
    assert read_note(DLCL).parameters["layers"].values == (20, 25, 30, 35)


def test_other_values_may_be_given_and_the_last_one_counts() -> None:
    overrides = ["layers=20", "model.encoder.layers=27", "training.max_updates=10"]
    loaded = load_run_file(DLCL, overrides)
    assert loaded.config.model.encoder.layers == 27
    assert loaded.config.training.max_updates is not None
    assert load_run_file(DLCL, [*overrides, "layers=22"]).config.model.encoder.layers == 22


def test_every_value_has_a_run_directory_of_its_own() -> None:
    assert load_run_file(DLCL).run_directory == Path("runs/dlcl-pre-depth-sweep-layers-25")
    assert load_run_file(DLCL, ["layers=30"]).run_directory == Path("runs/dlcl-pre-depth-sweep-layers-30")
    both = load_run_file(GROUPS, ["layers=48", "group_size=1"])
    assert both.run_directory == Path("runs/iwslt14-gtrans-60-6-group-sweep-group_size-1-layers-48")
    assert load_run_file(DLCL, ["run=mine"]).run_directory == Path("mine")
    assert load_run_file("papers/dlcl-2019/dlcl-pre-30-6").run_directory == Path("runs/dlcl-pre-30-6")


def test_parameters_are_arguments_in_python() -> None:
    loaded = load_settings(GROUPS, {"layers": 48, "training": {"max_updates": 7}})
    assert loaded.config.model.encoder.layers == 48
    assert loaded.run_directory == Path("runs/iwslt14-gtrans-60-6-group-sweep-group_size-6-layers-48")


def test_one_parameter_can_set_several_keys_of_an_own_run_file(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(SWEEP.format(values="[1, 2]"))
    loaded = load_run_file(str(path), ["depth=2"])
    assert (loaded.config.model.encoder.layers, loaded.config.model.decoder.layers) == (2, 2)
    assert loaded.name == "own-depth-2"


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"^command line: depth: ") as raised:
        load_run_file(GROUPS, ["depth=3"])
    assert raised.value.hint == "its parameters are group_size, layers"


def test_a_parameter_cannot_hide_a_section(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(SWEEP.format(values="[1, 2]").replace("depth:", "seed:"))
    with pytest.raises(UsageError, match="seed cannot be the name of a parameter"):
        load_run_file(str(path))
    assert "seed" in RunFile.model_fields


def test_the_list_shows_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    (tmp_path / "sweep.yaml").write_text(SWEEP.format(values="[1, 2]"))
    assert main(["recipes"]) == 0
    assert "depth=1, 2" in capsys.readouterr().out
