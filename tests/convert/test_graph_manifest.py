"""The manifest of exported graphs, which another person may have written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deepwire.convert.host.errors import ModelError
from deepwire.convert.host.translator import SubwordTranslator

DAMAGED: tuple[object, ...] = ((), {"start": {}}, {"start": {"file": 3}}, "a")
GRAPH = {"file": "start.onnx", "inputs": [], "outputs": []}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(
            ({"graphs": {"start": {**GRAPH, "file": file}}}, "outside of the folder")
            for file in ("../start.onnx", "/tmp/start.onnx", "a/../../start.onnx", "..")
        ),
        *(
            (
                {"vocabulary": {"type": "bpe", "source": [file], "target": ["a.model"]}},
                "outside of the folder",
            )
            for file in ("../a.model", "/a.model")
        ),
        *(({"graphs": {"start": {**GRAPH, "file": file}}}, "is no file") for file in ("pipe", ".")),
        *(({"runs": runs}, "runs: ") for runs in ("pickle", "", "torch", 3, None, ["onnxruntime"])),
        *(({"graphs": graphs}, "is damaged") for graphs in DAMAGED),
        ({"vocabulary": ["a"]}, "is damaged"),
    ],
)
def test_what_a_manifest_names_is_a_file_of_its_folder(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    whole = {"graphs": {"start": GRAPH}, "decoding": {"beam": 1, "n_best": 1}, **changes}
    (tmp_path / "manifest.json").write_text(json.dumps(whole))
    with pytest.raises(ModelError, match=said):
        SubwordTranslator(tmp_path)


def test_a_manifest_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ModelError, match="it is a pipe"):
        SubwordTranslator(tmp_path)
