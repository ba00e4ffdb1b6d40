"""Analyses of a model of several directions, with norms and a transform of each language."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepwire
from deepwire.cli.main import main
from deepwire.evaluation.metric_choice import corpus_score

SETTINGS = [
    "data.source=source",
    "data.target=target",
    "data.directions=[en-de, de-en]",
    "data.tag=both",
    "model.languages={norm: true, transform: identity, fusion: decoder}",
    "training.max_updates=6",
    "training.validation.every=6",
]


@pytest.fixture(scope="module")
def both(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("both") / "run"
    places = [f"run={folder}", f"data.prepared={corpus / 'prepared'}"]
    assert main(["train", str(corpus / "small.yaml"), *SETTINGS, *places, "--quiet"]) == 0
    return str(folder)


def test_a_direction_is_scored_by_itself(both: str, corpus: Path, analyze) -> None:
    options = ["--parts", "1", "--rounds", "1"]
    lines, reference = ((corpus / f"test.{name}").read_text().splitlines() for name in ("de", "en"))
    (row,) = analyze("length", both, "--direction", "de-en", *options)["tables"][0]["rows"]
    found = deepwire.load(both).translate(lines, to="en")
    assert row[3] == pytest.approx(corpus_score("bleu", found, reference).value)


def test_weights_of_groups_of_each_language(both: str, analyze) -> None:
    figures = {one["name"]: one for one in analyze("weights", both)["figures"]}
    shown = figures["decoder-probability-weights"]
    assert shown["rows"] == ["de", "en"]
    options = ["--direction", "de-en", "--side", "decoder", "--sentences", "2"]
    groups = analyze("depth", both, *options)["tables"][-1]["rows"]
    assert groups[0][1] == pytest.approx(shown["values"][1][0], abs=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "has several directions"),
        (["-s", "TEST.de", "-r", "TEST.en"], "choose one: --direction en-de, de-en"),
        (["--direction", "fr-en"], "fr"),
        (["--direction", "german"], "is not a direction"),
    ],
)
def test_a_direction_must_be_named(both: str, corpus: Path, capsys, options, message: str) -> None:
    options = [option.replace("TEST", str(corpus / "test")) for option in options]
    for analysis in ("length", "gates"):
        assert main(["analyze", analysis, both, *options]) in (2, 3)
        assert message in capsys.readouterr().err


def test_gates_and_agreement_of_a_direction(both: str, corpus: Path, capsys, analyze) -> None:
    finding = analyze("gates", both, "--direction", "en-de", "--sentences", "4")
    assert "(en)" in finding["provenance"]["data"][0].partition(" and ")[0]
    sides = [str(corpus / f"test.{name}") for name in ("de", "en", "de")]
    options = ["agreement", both, "-s", sides[0], "-r", sides[1], "-c", sides[2]]
    assert main(["analyze", *options]) == 2
    assert "choose one: --direction en-de, de-en" in capsys.readouterr().err
    finding = analyze(*options, "--direction", "de-en")
    assert finding["tables"][0]["rows"][0][1] == 16
