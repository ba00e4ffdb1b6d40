from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepwire.cli.main import main
from deepwire.errors import UsageError
from deepwire.lab.coordinate_check import CoordinateCheck, coordinate_check, growth
from deepwire.lab.report.finding import Finding
from deepwire.lab.subject.training_text import open_untrained

CPU = torch.device("cpu")
PLAIN = [
    "model.encoder={connection: pre_norm}",
    "model.decoder={connection: pre_norm, fusion: top}",
    "model.initialization=xavier",
]
WIDTHS = [*PLAIN, "model.parametrization={base: {d_model: 16, heads: 2}}"]
DEPTHS = [*PLAIN, "model.parametrization={base: {encoder_layers: 2, decoder_layers: 2}}"]


def checked(corpus: Path, overrides: list[str], **options: object) -> Finding:
    run = open_untrained(str(corpus / "small.yaml"), [*overrides, f"data.prepared={corpus / 'prepared'}"])
    check = CoordinateCheck(updates=4, tokens=300, **options)  # type: ignore[arg-type]  # of several kinds
    return coordinate_check(run, check, CPU, lambda _: None)


def column(finding: Finding, table: int, number: int) -> dict[str, float]:
    """One column of a table by place."""
    rows = finding.tables[table].rows
    return {str(row[0]): value for row in rows if isinstance(value := row[number], float)}


@given(
    st.lists(st.integers(1, 1000), min_size=2, unique=True),
    st.floats(-3, 3),
    st.floats(0.01, 100),
)
def test_growth_is_the_exponent_of_a_power_law(sizes: list[int], exponent: float, factor: float) -> None:
    found = growth({size: factor * size**exponent for size in sizes})
    assert found is not None
    assert found == pytest.approx(exponent, abs=1e-6)


def test_widths_grow_without_and_stay_with_complete_p(corpus: Path) -> None:
    """The stream grows about as the width without a parametrisation, and is flat with it."""
    plain = column(checked(corpus, PLAIN, widths=(16, 32, 64)), 0, -1)
    scaled = column(checked(corpus, WIDTHS, widths=(16, 32, 64)), 0, -1)
    assert plain.keys() == scaled.keys()
    for place in ("encoder layer 2", "decoder layer 2"):
        assert plain[place] > 0.6
        assert abs(scaled[place]) < 0.35
    assert plain["logits"] > 0.4
    assert abs(scaled["logits"]) < 0.35


@pytest.mark.parametrize("disturbed", ["sim_cut: 3", "input_noise: {source: {cutoff: 0.5}}"])
def test_the_updates_disturb_the_input_as_training_does(corpus: Path, disturbed: str) -> None:
    plain = column(checked(corpus, PLAIN, widths=(16, 32)), 0, -1)
    other = column(checked(corpus, [*PLAIN, f"training={{{disturbed}}}"], widths=(16, 32)), 0, -1)
    assert plain["logits"] != other["logits"]


def test_depths_grow_without_and_do_not_with_complete_p(corpus: Path) -> None:
    plain = column(checked(corpus, PLAIN, depths=(2, 4, 8)), 0, -1)
    scaled = column(checked(corpus, DEPTHS, depths=(2, 4, 8)), 0, -1)
    assert plain["decoder layer top"] > 0.4
    assert scaled["decoder layer top"] < 0.15


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "neither widths nor depths"),
        ({"widths": (16,)}, "--widths: 16 are not several different sizes"),
        ({"depths": (2, 2)}, "--depths: 2,2 are not several"),
        ({"widths": (16, 33)}, "--widths: 33 does not fit this model: d_model must be even"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(corpus: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        checked(corpus, PLAIN, **options)


def test_the_command_prints_and_refuses(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["analyze", "coordinate-check"]
    settings = [*PLAIN, f"data.prepared={corpus / 'prepared'}", "--tokens", "100", "--updates", "1"]
    assert main([*command, str(corpus / "small.yaml"), *settings, "--widths", "8,16", "--depths", "1,2"]) == 0
    text = capsys.readouterr().out
    assert "Change of signals by width, rms" in text
    assert "Size of signals by depth, rms" in text
    assert text.count("decoder layer lowest") == 2
    for arguments, words in (
        ([str(corpus)], "is no run file or recipe"),
        ([str(corpus / "small.yaml"), "--rate", "0"], "--rate: must be a number above 0"),
        ([str(corpus / "small.yaml"), "--widths", "8,x"], "'8,x' is no list of whole numbers"),
    ):
        assert main([*command, *arguments]) == 2
        assert words in capsys.readouterr().err
