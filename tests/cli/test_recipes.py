from __future__ import annotations

import pytest
import yaml

from deepwire import recipes
from deepwire.cli.main import main
from deepwire.recipes.notes import read_note


def test_the_list_names_every_recipe_with_its_scores(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    assert {"demo", "multi30k/base", "multi30k/transformer-tiny", "multi30k/depth-lstm-tiny"} <= set(
        out.split()
    )
    assert "test_2016_flickr 41.0" in out


def test_show_prints_the_file_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for name in recipes.names():
        path = recipes.find(name)
        assert path is not None
        assert main(["recipes", "show", name]) == 0
        assert capsys.readouterr().out == path.read_text(encoding="utf-8")


def test_show_resolved_holds_defaults_and_what_is_extended(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", "multi30k/depth-lstm-tiny", "--resolved"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["model"]["d_model"] == 128
    assert shown["model"]["encoder"]["connection"]["type"] == "depth_lstm"
    assert shown["data"]["filters"]["drop_duplicates"] is True


def test_an_unknown_recipe_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", "multi30k/transformer-tyni"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: multi30k/transformer-tyni: no such recipe",
        "hint: did you mean multi30k/transformer-tiny?",
    ]


@pytest.mark.parametrize("name", ["../errors", "/etc/passwd", "", ".", "multi30k", "demo.yaml"])
def test_a_name_never_leaves_the_folder_of_recipes(name: str) -> None:
    assert recipes.find(name) is None


def test_every_recipe_says_what_it_is() -> None:
    for name in recipes.names():
        assert read_note(name).description
