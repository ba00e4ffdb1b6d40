"""The manifest of exported graphs, which another person may have written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deepwire.convert.translate import ModelError, Translator

GRAPH = {"file": "start.onnx", "inputs": [], "outputs": []}
WHOLE = {
    "runs": "onnxruntime",
    "graphs": {"start": GRAPH},
    "vocabulary": {"type": "bpe", "source": ["a.model"]},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(
            ({"graphs": {"start": {**GRAPH, "file": file}}}, "outside of the folder")
            for file in ("../start.onnx", "/tmp/start.onnx", "a/../../start.onnx", "..")
        ),
        ({"vocabulary": {"type": "bpe", "source": ["../a.model"]}}, "outside of the folder"),
        *(({"graphs": {"start": {**GRAPH, "file": file}}}, "is no file") for file in ("pipe", ".")),
        *(({"runs": runs}, "runs: ") for runs in ("pickle", "", None)),
        ({"graphs": []}, "cannot read"),
        ({"graphs": {"start": {}}}, "cannot read"),
        ({"graphs": "a"}, "cannot read"),
    ],
)
def test_a_manifest_names_files_of_its_folder(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "manifest.json").write_text(json.dumps({**WHOLE, **changes}))
    with pytest.raises(ModelError, match=said):
        Translator(tmp_path)


def test_a_manifest_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ModelError, match="it is a pipe"):
        Translator(tmp_path)
