"""``deepwire export --format torch_export``: a model that torch runs without deepwire."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from untrained_models import save_untrained, vocabularies_of

from deepwire.checkpoint.store import load_model, save_model
from deepwire.cli.main import main
from deepwire.convert import graph_folder, torch_programs
from deepwire.convert.host import graphs
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.translator import Translator

Text = Mapping[str, Sequence[str]]
SETTINGS = {
    "d_model": 16,
    "heads": 2,
    "feed_forward": 32,
    "encoder": {"layers": 1, "mixer": "gru"},  # a loop over positions
    "decoder": {"layers": 1, "aggregation": "dlcl"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, multi30k: Text) -> Path:
    """A model, and text."""
    folder = tmp_path_factory.mktemp("export")
    metadata = {"source_bos": True, "decoding": {"max_length_extra": 12}}
    save_untrained(folder / "model", vocabularies_of(multi30k), SETTINGS, metadata)
    for language in ("de", "en"):
        (folder / f"text.{language}").write_text("\n".join(multi30k[language][:6]) + "\n")
    return folder


def exported(folder: Path, format_name: str) -> Path:
    """What `deepwire export` makes of it, compared."""
    output = folder / format_name
    text = ["--text", str(folder / "text.de"), "--reference", str(folder / "text.en")]
    assert main(["export", str(folder / "model"), "-o", str(output), "--format", format_name, *text]) == 0
    return output


@pytest.fixture(scope="module")
def programs(folder: Path) -> Path:
    """As programs of torch.export."""
    return exported(folder, "torch_export")


def proven(folder: Path) -> None:
    """It fails where the export does not compute the same."""
    found = json.loads((folder / "parity.json").read_text())["compared"]
    assert found["lines"] == 6
    assert found["largest_difference"] < 1e-4
    assert (found["equal"], found["beam_equal"]) == (1, 1)
    assert found["bleu"][0] == found["bleu"][1]


def test_it_translates_the_same_there(programs: Path) -> None:
    proven(programs)
    manifest = json.loads((programs / "manifest.json").read_text())
    assert manifest["runs"] == "torch_export"
    names = {f"{name}.pt2" for name in ("encoder", "start", "step")}
    assert {path.name for path in programs.glob("*.pt2")} == names


@pytest.mark.slow
def test_torch_runs_it_without_deepwire(folder: Path, programs: Path) -> None:
    """As a program, and neither deepwire nor onnxruntime can be imported."""
    line = (folder / "text.de").read_text().split("\n")[0]
    forbidding = (
        "import sys, runpy; sys.modules.update(deepwire=None, onnxruntime=None); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", forbidding, str(programs / "translate.py")]
    done = subprocess.run(command, input=f"{line}\n", capture_output=True, text=True, check=True)
    loaded = load_model(folder / "model")
    config = DecodingConfig(max_length_extra=12)
    translator = Translator([loaded.model], loaded.vocabularies, config, source_bos=True)
    assert done.stdout == translator.translate([line])[0] + "\n"


@pytest.mark.slow
def test_other_numbers_are_rejected(
    folder: Path,
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The programs of another model, as if they had been traced wrongly."""

    def copy(self: object, graph: graph_folder.Graph, path: Path, quantization: str) -> None:
        shutil.copyfile(programs / path.name, path)

    monkeypatch.setattr(torch_programs.TorchExport, "write_graph", copy)
    loaded = load_model(folder / "model")
    with torch.no_grad():
        loaded.model.head.table.weight.add_(0.1)
        loaded.model.head.table.weight[5:9] += 0.5
    save_model(tmp_path / "other", loaded.model, loaded.vocabularies, {"source_bos": True})
    text = ["--text", str(folder / "text.de")]
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "other"), "-o", str(out), "--format", "torch_export", *text]) == 1
    assert "out.rejected: torch_export computes something else" in capsys.readouterr().err
    assert not out.exists()
    assert (tmp_path / "out.rejected" / "parity.json").exists()


def test_a_full_disk_leaves_nothing(
    folder: Path,
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is full when the second program is written."""

    def write(path: Path, content: bytes) -> None:
        if path.name == "start.pt2":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        path.open("wb").write(content)

    monkeypatch.setattr(
        torch_programs, "traced_flat", lambda graph: torch.export.load(programs / f"{graph.name}.pt2")
    )
    monkeypatch.setattr(Path, "write_bytes", write)
    out = str(tmp_path / "out")
    command = ["export", str(folder / "model"), "-o", out, "--format", "torch_export", "--unchecked"]
    assert main(command) == 6
    assert "No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_position_stays_a_scalar(tmp_path: Path) -> None:
    """A program made for a scalar would take `[1]` for one more dimension."""

    class Added(torch.nn.Module):
        def forward(self, vectors: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor]:
            return (vectors + position[None, None],)

    program = torch.export.export(Added(), (torch.zeros(2, 3), torch.tensor(1)))
    torch.export.save(program, tmp_path / "program.pt2")
    run = graphs._torch(tmp_path / "program.pt2", 0)
    turned = np.arange(6, dtype=np.float32).reshape(3, 2).T
    (found,) = run({"vectors": turned, "position": np.array(2)})
    assert found.tolist() == (turned + 2).tolist()  # and no [1, 2, 3]


@pytest.mark.slow
def test_positions_in_halves(multi30k: Text, tmp_path: Path) -> None:
    """The program was given the position as `[1]` and computed vectors `[1, 1, d]`."""
    settings = {**SETTINGS, "positions": {"type": "sinusoidal", "layout": "halves"}}
    metadata = {"source_bos": True, "decoding": {"max_length_extra": 12}}
    save_untrained(tmp_path / "model", vocabularies_of(multi30k), settings, metadata)
    for language in ("de", "en"):
        (tmp_path / f"text.{language}").write_text("\n".join(multi30k[language][:6]) + "\n")
    programs = exported(tmp_path, "torch_export")
    proven(programs)
    assert json.loads((programs / "manifest.json").read_text())["runs"] == "torch_export"
