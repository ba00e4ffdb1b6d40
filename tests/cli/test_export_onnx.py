"""``deepwire export --format onnx``: a model that no other program computes, run by onnxruntime."""

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

import deepwire
from deepwire.checkpoint.store import LoadedModel, load_model
from deepwire.cli.main import main
from deepwire.convert import graph_formats
from deepwire.convert.export_format import host_settings
from deepwire.data.vocabulary import BOS, Vocabularies
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.search import Batch, generate
from deepwire.errors import ModelError

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

LINES = 6
FORMAT = "onnx"
Text = Mapping[str, Sequence[str]]
SETTINGS = {
    "d_model": 16,
    "heads": 2,
    "feed_forward": 32,
    "encoder": {"layers": 2, "aggregation": "dlcl"},
    "decoder": {"layers": 1, "mixer": {"type": "self_attention", "relative": 4}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, multi30k: Text, joint: Vocabularies) -> Path:
    """A model whose settings CTranslate2 refuses, text, and what was exported of it."""
    folder = tmp_path_factory.mktemp("export")
    metadata = {"source_bos": True, "decoding": {"length_penalty": 1.2, "max_length_extra": 12}}
    save_untrained(folder / "model", joint, SETTINGS, metadata)
    for language in ("de", "en"):
        (folder / f"text.{language}").write_text("\n".join(["", *multi30k[language][: LINES - 1], ""]))
    text = ["--text", str(folder / "text.de"), "--reference", str(folder / "text.en")]
    assert main(["export", str(folder / "model"), "-o", str(folder / "onnx"), "--format", "onnx", *text]) == 0
    return folder


@pytest.fixture
def without_tracing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs as they were exported already: tracing takes most of the time."""

    def copy(graph: graph_formats.Graph, path: Path) -> None:
        path.write_bytes((folder / "onnx" / f"{graph.name}.onnx").read_bytes())

    monkeypatch.setattr(graph_formats, "write_onnx", copy)


def test_it_translates_the_same_there(folder: Path) -> None:
    proven(folder / "onnx", LINES - 1)
    assert len({path.name for path in (folder / "onnx").iterdir()}) == 7


def host(folder: Path) -> type:
    """The host as someone else imports it."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("translate", folder / "onnx" / "translate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["translate"] = module
    spec.loader.exec_module(module)
    return module.Translator


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 1},
        {"beam": 4, "n_best": 3},
        {"beam": 3, "n_best": 2, "stop": "optimal", "length_penalty_form": "average", "length_penalty": 1.0},
        {"beam": 5, "length_penalty": -0.5, "stop": "optimal", "max_length_ratio": 0, "max_length_extra": 4},
        {"beam": 2, "min_length": 5, "unknown_penalty": 0.5, "batch_tokens": 30},
        {"beam": 220, "n_best": 9, "max_length_extra": 1, "max_length_ratio": 0},
    ],
    ids=str,
)
def test_the_host_searches_as_we_do(folder: Path, settings: dict[str, object]) -> None:
    """The same hypotheses with the same scores, in the same order."""
    config = DecodingConfig.model_validate({"max_length_extra": 12, **settings})
    loaded = load_model(folder / "model")
    generator = torch.Generator().manual_seed(5)
    sources = [torch.randint(4, 400, (length,), generator=generator).tolist() for length in (3, 1, 7, 5)]
    given = host_settings(config)
    theirs = host(folder)(folder / "onnx", given).translate_ids(sources)
    for source, found in zip(sources, theirs, strict=True):
        read = torch.tensor([[BOS, *source, 2]])
        (ours,) = generate(loaded.model, Batch(read, [config.output_limit(len(source) + 1)], [1]), config)
        assert [tuple(one.ids) for one in found] == [one.ids for one in ours]
        np.testing.assert_allclose([one.score for one in found], [one.score for one in ours], atol=1e-5)
        np.testing.assert_allclose(
            [one.log_probability for one in found], [one.log_probability for one in ours], atol=1e-4
        )


def test_the_host_needs_no_deepwire_and_no_torch(folder: Path) -> None:
    """As a program: text in, text out, and numbers too; what it prints is what deepwire prints."""
    lines = (folder / "text.de").read_text().split("\n")[:4]
    forbidding = (
        "import sys, runpy; sys.modules.update(deepwire=None, torch=None); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )

    def run(*options: str, text: str) -> list[str]:
        command = [sys.executable, "-c", forbidding, str(folder / "onnx" / "translate.py"), *options]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        return done.stdout.split("\n")[:-1]

    translator = deepwire.load(str(folder / "model"), precision="fp32", device="cpu")
    ours = [translation.text for translation in translator.translations(lines)]
    assert any(ours)
    assert run(text="\ufeff" + "\r\n".join(lines)) == ours
    ids = translator.vocabularies.source.encode(lines[1])
    (numbers,) = run("--ids", "--beam", "1", text=" ".join(map(str, ids)) + "\n")
    (greedy,) = deepwire.load(str(folder / "model"), settings={"beam": 1}).translations([lines[1]])
    pieces = translator.vocabularies.target.pieces(map(int, numbers.split()))
    assert tuple(pieces) == greedy.candidates[0].tokens


def test_an_exported_folder_is_no_model(folder: Path) -> None:
    with pytest.raises(ModelError, match="onnx: is an exported model") as refused:
        load_model(folder / "onnx")
    assert "parity.json names" in refused.value.hint


@pytest.mark.usefixtures("without_tracing")
def test_eight_bits(export, folder: Path, tmp_path: Path) -> None:
    export(folder / "model", "--int8", "--most-different", "5")
    record = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert record["quantization"] == "int8"
    assert record["compared"]["mean_difference"] > 1e-4
    sizes = [(place / "step.onnx").read_bytes() for place in (folder / "onnx", tmp_path / "out")]
    assert b"MatMulInteger" in sizes[1]
    assert b"MatMulInteger" not in sizes[0]
    assert not list((tmp_path / "out").glob("*float32*"))


@pytest.mark.usefixtures("without_tracing")
def test_other_numbers_are_rejected(
    export, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose graphs are of another one."""
    load = graph_formats.stored_config

    def changed(model: LoadedModel) -> DecodingConfig:
        with torch.no_grad():
            model.model.head.table.weight.add_(torch.randn_like(model.model.head.table.weight))
        return load(model)

    monkeypatch.setattr(graph_formats, "stored_config", changed)
    errors = export(folder / "model", code=1)
    assert "out.rejected: onnx computes something else" in errors
    assert "allowed is 0.001 on average" in errors
    assert not (tmp_path / "out").exists()
    report = json.loads((tmp_path / "out.rejected" / "parity.json").read_text())["compared"]
    assert report["equal"] < 1
