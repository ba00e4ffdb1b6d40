"""``examples/language-models/compare.py`` on tiny text: its results, and that nothing is trained twice."""

from __future__ import annotations

import gzip
import json
import re
import runpy
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import deepwire

EXAMPLE = Path(__file__).parents[2] / "examples" / "language-models"


@pytest.fixture
def script_file(tmp_path: Path) -> Path:
    """The script beside its run file, of a model that is smaller."""
    settings = (EXAMPLE / "run.yaml").read_text()
    for large, small in (
        ("size: 8000", "size: 600"),
        ("d_model: 128", "d_model: 16"),
        ("layers: 12", "layers: 1"),
    ):
        assert large in settings
        settings = settings.replace(large, small)
    (tmp_path / "run.yaml").write_text(settings)
    return Path(shutil.copy(EXAMPLE / "compare.py", tmp_path))


@pytest.fixture
def texts(tmp_path: Path, multi30k: Mapping[str, Sequence[str]]) -> Path:
    """Text where run.yaml looks for it, the training text compressed."""
    lines = multi30k["en"]
    for name in ("deen-tech", "deen-tech-full"):
        (tmp_path / name).mkdir()
    with gzip.open(tmp_path / "deen-tech-full/train.en.gz", "wt") as file:
        file.write("\n".join(lines[:300]) + "\n")
    (tmp_path / "deen-tech/valid.en").write_text("\n".join(lines[300:330]) + "\n")
    (tmp_path / "deen-tech/test.en").write_text("\n".join(lines[330:360]) + "\n")
    return tmp_path


@pytest.mark.slow
def test_results_and_what_is_complete_is_not_trained_again(
    script_file: Path, texts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = texts / "runs"
    script = runpy.run_path(str(script_file))
    arguments = [str(script_file), str(texts), "--folder", str(folder), "--layers", "1", "--updates", "20"]
    arguments += ["--trial-updates", "5", "--peaks", "0.01", "0.00001"]

    def call(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", [*arguments, *more])
        script["main"]()
        return capsys.readouterr().out

    call("--only", "pre-norm")
    weights = {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}
    assert weights
    shown = call("--only", "pre-norm", "dlcl", "--seeds", "1", "2")
    assert {path: path.stat().st_mtime_ns for path in weights} == weights

    results = json.loads((folder / "results.json").read_text())
    assert results["seeds"] == [1, 2]
    assert results["settings"]["layers"] == 1
    assert results["settings"]["updates"] == 20
    assert list(results["systems"]) == ["pre-norm", "dlcl"]
    lines = (texts / "deen-tech/test.en").read_text().splitlines()
    for name, system in results["systems"].items():
        assert list(system["scores"]) == ["1", "2"]
        assert system["peak"] == 0.01
        worse = deepwire.Run(folder / f"{name}-1e-05-1")
        assert worse.history[-1]["update"] == 5
        better = deepwire.Run(folder / f"{name}-0.01-1")
        trial = next(entry for entry in better.history if entry["kind"] == "valid")
        assert trial["update"] == 5
        assert trial["loss"] < worse.history[-1]["loss"]
        for seed, score in system["scores"].items():
            alone = deepwire.load(folder / f"{name}-0.01-{seed}", precision="fp32").perplexity(lines)
            assert score == pytest.approx(alone.to_dict())

    table = (folder / "results.md").read_text()
    assert table.partition("\n\n| ")[2][:20] in shown
    rows = re.findall(r"^\| ([\w-]+) \| ([\d,]+) \| [\d.]+ \| ([\d.]+) \|", table, re.MULTILINE)
    assert {name for name, _, _ in rows} == {"pre-norm", "dlcl"}
    assert [float(perplexity) for *_, perplexity in rows] == sorted(float(value) for *_, value in rows)
