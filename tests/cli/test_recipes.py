from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deepwire import recipes
from deepwire.cli.main import main
from deepwire.recipes.notes import read_note

# d 16, F 24, 1 + 1 layers, pre-norm: 4,880 parameters, and 17 for each word.
TINY = """
recipe:
  description: a small model
  paper: A. Nobody 2020, On Nothing
  row: Table 1, row 1
  size: {size}
data: {{source: de, target: en, train: corpus, vocabulary: {{type: bpe, size: 40}}}}
model: {{d_model: 16, heads: 4, feed_forward: 24, encoder: {{layers: 1}}, decoder: {{layers: 1}}}}
"""

Shelf = Callable[..., None]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """Puts recipes with these sizes in the place of the shipped ones."""

    def fill(**sizes: str) -> None:
        for name, size in sizes.items():
            (tmp_path / "papers").mkdir(exist_ok=True)
            (tmp_path / "papers" / f"{name}.yaml").write_text(TINY.format(size=size))

    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    return fill


def test_the_list_names_every_recipe_with_its_scores(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    assert set(recipes.names()) <= set(out.split())
    assert "test_2016_flickr 41.0" in out


def test_show_resolved_holds_defaults_and_what_is_extended(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", "multi30k/depth-lstm-tiny", "--resolved"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["model"]["d_model"] == 128
    assert shown["model"]["encoder"]["connection"]["type"] == "depth_lstm"
    assert shown["data"]["filters"]["drop_duplicates"] is True


def test_an_unknown_recipe_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "check"):
        assert main(["recipes", command, "multi30k/transformer-tyni"]) == 2
        assert capsys.readouterr().err.splitlines() == [
            "error: multi30k/transformer-tyni: no such recipe",
            "hint: did you mean multi30k/transformer-tiny?",
        ]


def test_check_counts_and_compares(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf(fits="{printed: 0.01M, vocabulary: 40}")
    assert main(["recipes", "check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("papers/fits"))
    assert row.split()[-4:] == ["0.01M", "0.0056M", "-0.0044M", "fits"]
    assert lines[-1] == "1 fit, 0 are known not to, 0 do not fit; 0 recipes without a printed size"


def test_check_fails_where_a_size_does_not_fit(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf(
        fits="{printed: 0.01M, vocabulary: 40}",
        wrong="{printed: 0.02M, vocabulary: 40}",
        explained="{printed: 0.02M, vocabulary: 40, differs: a misprint}",
    )
    assert main(["recipes", "check"]) == 1
    out = capsys.readouterr().out
    assert "DOES NOT FIT" in out
    assert "- papers/explained (Table 1, row 1): a misprint" in out
    assert main(["recipes", "check", "papers/fits", "papers/explained"]) == 0


def test_every_recipe_says_what_it_is() -> None:
    for name in recipes.names():
        assert read_note(name).description
