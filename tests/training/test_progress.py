"""Averages of updates, and the display."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import torch

from deepwire.errors import UsageError
from deepwire.training.log import (
    Averages,
    Display,
    TrainingStatus,
    perplexity,
    short,
)
from deepwire.training.optimizers.optimizer import StepResult
from deepwire.training.run import Meter

HALFWAY = TrainingStatus(10, 0.5, 0.5, 3.0, 3.0, 1e-3, 1000)


def step(norm: float, finite: bool) -> StepResult:
    return StepResult(torch.tensor(norm), torch.tensor(finite))


def sums(*values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in zip(("loss", "nll"), values, strict=True)}


def test_meter_averages_over_tokens_and_leaves_bad_updates_out() -> None:
    meter = Meter(torch.device("cpu"))
    meter.add(sums(20.0, 10.0), 10, step(1.0, True))
    meter.add(sums(float("nan"), float("inf")), 1000, step(float("nan"), False))
    meter.add(sums(120.0, 60.0), 30, step(3.0, True))
    found = meter.averages()
    assert (found.losses, found.gradient_norm, found.tokens) == ({"loss": 3.5, "nll": 1.75}, 2.0, 40)
    assert meter.take_finite() == [True, False, True]
    assert meter.take_finite() == []
    other = Meter(torch.device("cpu"))
    other.load_state(meter.state())
    assert other.averages() == found
    meter.reset()
    assert meter.averages().tokens == 0


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0.0"),
        (9.24, "9.2"),
        (99.96, "100"),
        (999, "999"),
        (18_234, "18.2k"),
        (3.1e9, "3.1G"),
        (2e13, "20T"),
        (perplexity(1000.0), "inf"),
        (perplexity(float("nan")), "nan"),
    ],
)
def test_short_numbers(number: float, text: str) -> None:
    assert short(number) == text


def test_lines_go_to_stderr_and_with_the_time_to_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    standing = TrainingStatus(2000, 1.372, 0.5, 60.0, 4320.0, 3.5e-4, 3_100_000_000)
    averages = Averages({"loss": 4.113, "nll": 3.2, "r_drop": 0.5}, 0.61, 100, 18_200.0)
    with Display(tmp_path / "log.txt") as display:
        display.train_line(standing, averages)
        display.valid_line(2000, {"loss": 3.0, "nll": 2.0, "perplexity": 7.39, "bleu": 31.234}, "best")
    captured = capsys.readouterr()
    expected = "u 2000 ep 1.37 loss 4.113 nll 3.200 kl 0.500 ppl 24.5 lr 3.5e-04 gn 0.61 tok/s 18.2k eta 1h12"
    expected += " mem 3.1G"
    assert captured.out == ""
    assert captured.err.splitlines() == [
        expected,
        "u 2000 valid loss 3.000 nll 2.000 ppl 7.4 bleu 31.23 (best)",
    ]
    assert expected in (tmp_path / "log.txt").read_text()


def test_an_unexpected_error_goes_to_the_log_with_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Display(tmp_path / "log.txt", quiet=True):
        raise ZeroDivisionError("boom")
    assert "Traceback" in (tmp_path / "log.txt").read_text()
    with pytest.raises(UsageError), Display(tmp_path / "log.txt", quiet=True):
        raise UsageError("a clear line", "a hint")
    assert "error: a clear line" in (tmp_path / "log.txt").read_text()


def test_a_bar_is_shown_on_a_terminal_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    for terminal in (False, True):
        monkeypatch.setattr(shown, "isatty", lambda answer=terminal: answer, raising=False)
        with Display(tmp_path / "log.txt") as display:
            assert display.has_bar == terminal
            if terminal:
                display.move(HALFWAY)
            display.say("u 10 loss 3.000")
    drawn = "\r\x1b[Ku 10 ep 0.50 [###############---------------] 50% left 3s"
    assert shown.getvalue() == f"u 10 loss 3.000\n{drawn}\r\x1b[Ku 10 loss 3.000\n\r\x1b[K"


def test_a_quiet_run_shows_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Display(tmp_path / "log.txt", quiet=True) as display:
        display.say("u 10 loss 3.000")
    assert capsys.readouterr() == ("", "")
    assert "loss" in (tmp_path / "log.txt").read_text()
