"""The progress of a run in a notebook, where rich asks IPython to show things."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest

from deepwire.training import progress
from deepwire.training.progress import Display, TrainingStatus

HALFWAY = TrainingStatus(10, 0.5, 0.5, 3.0, 3.0, 1e-3, 1000)


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
    monkeypatch.setattr(progress, "find_spec", lambda _name: None)
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
    monkeypatch.setattr(progress, "find_spec", lambda name: importlib.util.find_spec("sys"))
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
