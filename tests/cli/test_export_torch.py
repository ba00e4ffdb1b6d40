"""``deepwire export --format torch_export``: a model that torch runs without deepwire.

`test_export_alone.py` has a faster test of this format, `test_export_onnx.py` one of encoders as graphs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from untrained_models import proven, save_untrained

from deepwire.checkpoint.store import load_model
from deepwire.cli.main import main
from deepwire.convert import translate
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.translator import Translator

Text = Mapping[str, Sequence[str]]
SETTINGS = {
    "d_model": 16,
    "heads": 2,
    "feed_forward": 32,
    "encoder": {"layers": 1, "mixer": "gru"},  # a loop over positions
    "decoder": {"layers": 1, "aggregation": "dlcl", "mixer": "mhplstm"},  # begins with a parameter
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, multi30k: Text, joint: Vocabularies) -> Path:
    """A model, and text."""
    folder = tmp_path_factory.mktemp("export")
    metadata = {"source_bos": True, "decoding": {"max_length_extra": 12}}
    save_untrained(folder / "model", joint, SETTINGS, metadata)
    for language in ("de", "en"):
        (folder / f"text.{language}").write_text("\n".join(multi30k[language][:6]) + "\n")
    return folder


@pytest.fixture(scope="module")
def programs(folder: Path) -> Path:
    """As programs of torch.export, compared."""
    output = folder / "programs"
    text = ["--text", str(folder / "text.de"), "--reference", str(folder / "text.en")]
    assert main(["export", str(folder / "model"), "-o", str(output), "--format", "torch_export", *text]) == 0
    return output


@pytest.mark.slow
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


def test_a_position_stays_a_scalar(tmp_path: Path) -> None:
    """A program made for a scalar would take `[1]` for one more dimension."""

    class Added(torch.nn.Module):
        def forward(self, vectors: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor]:
            return (vectors + position[None, None],)

    program = torch.export.export(Added(), (torch.zeros(2, 3), torch.tensor(1)))
    torch.export.save(program, tmp_path / "program.pt2")
    run = translate._torch(tmp_path / "program.pt2", 0)
    turned = np.arange(6, dtype=np.float32).reshape(3, 2).T
    (found,) = run({"vectors": turned, "position": np.array(2)})
    assert found.tolist() == (turned + 2).tolist()  # and no [1, 2, 3]
