"""The notebooks run from start to end, with little training."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["inside_a_model", "train_and_translate"]


def short(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> nbformat.NotebookNode:
    """The notebook, which will train for a moment on a little text in the folder."""
    for name, value in {
        "UPDATES": "4",
        "LINES": "5",
        "RUN": str(folder / "run"),
        "OMP_NUM_THREADS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs"
    text = folder / "examples" / "multi30k"
    text.mkdir(parents=True)
    for file in (path.parents[1] / "multi30k").glob("*.gz"):
        with gzip.open(file, "rb") as whole, gzip.open(text / file.name, "wb") as part:
            part.writelines(islice(whole, 1500 if file.name.startswith("train") else 40))
    return notebook


def test_cells_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a kernel, which takes most of the time."""
    notebook = short(NOTEBOOKS[0], tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
    assert len(capsys.readouterr().out.splitlines()) > 10


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = short(path, tmp_path, monkeypatch)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert printed
