"""Averages of updates, the expected time to the end, and the display, also in a notebook."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch

from deepwire.errors import UsageError
from deepwire.training.log import (
    Averages,
    Display,
    Meter,
    RemainingTime,
    TrainingStatus,
    human_time,
    perplexity,
    short,
)
from deepwire.training.optimizers.optimizer import StepResult

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


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_slow_first_update_is_not_expected_again() -> None:
    clock = Clock()
    pace = RemainingTime(clock)
    assert pace.seconds_left(0.0) is None
    for update in range(1, 101):
        clock.now += 60.0 if update == 1 else 0.5
        pace.passed(update / 1000)
        if update == 1:
            assert pace.seconds_left(update / 1000) is None
        else:
            assert pace.seconds_left(update / 1000) == pytest.approx((1000 - update) * 0.5)


def test_slow_updates_are_forgotten_and_validation_is_counted() -> None:
    """Ten slow ones at the beginning; a validation of 20 s after every 100 updates of 1 s."""
    clock = Clock()
    pace = RemainingTime(clock)
    for update in range(1, 1001):
        clock.now += 30.0 if update <= 10 else 1.0
        pace.passed(update / 2000)
        if update == 64:
            assert pace.seconds_left(update / 2000) == pytest.approx(1936)
        if update % 100 == 0:
            clock.now += 20.0
    assert pace.seconds_left(0.5) == pytest.approx(1200, rel=0.02)


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.4, "0s"), (45, "45s"), (99.4, "99s"), (100, "2m"), (4320, "1h12"), (277_200, "3d05h")],
)
def test_times_as_people_say_them(seconds: float | None, text: str) -> None:
    assert human_time(seconds) == text


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


class Notebook:
    """What a notebook has shown."""

    def __init__(self) -> None:
        self.shown: list[object] = []
        self.cleared = 0

    def display(self, thing: object) -> None:
        self.shown.append(thing)

    def text(self) -> str:
        return "".join(str(getattr(thing, "text", "")) for thing in self.shown)


class Output:
    """The widget that rich puts its bar into."""

    notebook: Notebook

    def clear_output(self, wait: bool) -> None:
        self.notebook.cleared += wait

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """A process that rich takes for a notebook, without the package for widgets."""
    notebook, module = Notebook(), ModuleType("IPython.display")
    module.display = notebook.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("deepwire.training.log.find_spec", lambda _name: None)
    return notebook


def show(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Display(folder / "log.txt") as display:
            display.say("u 10 loss 3.000")
            display.move(HALFWAY)


def test_a_notebook_without_widgets_gets_the_lines(notebook: Notebook, tmp_path: Path) -> None:
    show(tmp_path)
    assert "u 10 loss 3.000" in notebook.text()
    assert "left" not in notebook.text()


def test_a_notebook_with_widgets_gets_one_bar_that_moves(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("ipywidgets")
    module.Output = Output  # type: ignore[attr-defined]
    Output.notebook = notebook
    monkeypatch.setitem(sys.modules, "ipywidgets", module)
    monkeypatch.setattr("deepwire.training.log.find_spec", lambda name: importlib.util.find_spec("sys"))
    show(tmp_path)
    assert sum(isinstance(thing, Output) for thing in notebook.shown) == 1
    assert notebook.cleared >= 1
    assert "u 10 loss 3.000" in notebook.text()
    assert "u 10 ep 0.50" in notebook.text()
    assert "left 3s" in notebook.text()


def test_a_quiet_run_shows_nothing_in_a_notebook(notebook: Notebook, tmp_path: Path) -> None:
    with Display(tmp_path / "log.txt", quiet=True) as display:
        display.say("u 10 loss 3.000")
    assert notebook.text() == ""
    assert "loss" in (tmp_path / "log.txt").read_text()
