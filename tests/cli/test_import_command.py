"""`deepwire import`: from a foreign file to translations, and every mistake as one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from foreign_checkpoints import parameters, write_dictionary, write_fairseq, write_neutron_vocabulary
from safetensors.torch import save_file

from deepwire.checkpoint.store import load_model

torch.set_num_threads(1)
RUN = """
data: {source: de, target: en, train: nowhere/train}
model:
  d_model: 32
  heads: 4
  feed_forward: 64
  dropout: 0
  norm_eps: 1e-5
  bias: {attention: true, feed_forward: both, output: false}
  positions: {type: sinusoidal, layout: halves, first: 2}
  initialization: xavier
  encoder: {layers: 4, connection: post_norm}
  decoder: {layers: 3, connection: post_norm}
decoding: {beam: 2}
"""


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    return write_dictionary(tmp_path / "dict.txt", 44)


def translated(command, tmp_path: Path, model: Path) -> list[str]:
    text = tmp_path / "text"
    text.write_text("word3 word5 word7\n\nword1 nothing\n")
    code, out, _ = command("translate", model, "--input", text, "--quiet")
    assert code == 0
    return out.split("\n")[:-1]


def test_fairseq_to_translation(command, dictionary: Path, tmp_path: Path) -> None:
    """Arguments of the checkpoint are enough; the folder is a model like any other."""
    path, model = write_fairseq(tmp_path, "dlcl_postnorm", "pt"), tmp_path / "model"
    code, out, err = command(
        "import", "fairseq", path, "--vocabulary", dictionary, "-o", model, "decoding.max_length_extra=5"
    )
    assert (code, out) == (0, f"{model}\n")
    assert err.startswith("fairseq: 4+3 layers, ")
    record = json.loads((model / "config.json").read_text())
    assert record["metadata"]["source"] == "de"
    assert record["metadata"]["source_bos"] is False
    assert record["metadata"]["decoding"]["length_penalty_form"] == "average"
    assert record["metadata"]["imported"]["family"] == "fairseq"
    lines = translated(command, tmp_path, model)
    assert len(lines) == 3
    assert lines[0]
    assert lines[1] == ""
    words = {f"word{number}" for number in range(44)}
    assert set(lines[0].split()) <= words | {"\u2047"}
    assert command("inspect", model)[0] == 0


def test_neutron_to_translation(command, tmp_path: Path) -> None:
    """What a checkpoint of Neutron does not tell is asked for or noted; sources begin with BOS."""
    path, model = tmp_path / "std.safetensors", tmp_path / "model"
    save_file(parameters("nmt_std_v2"), path)
    write_neutron_vocabulary(tmp_path / "src.vcb", 36)
    write_neutron_vocabulary(tmp_path / "tgt.vcb", 36)
    start = ("import", "neutron", path, "--vocabulary", tmp_path, "-o", model)
    code, _, err = command(*start)
    assert code == 2
    assert "does not tell model.heads" in err
    orders = ("model.encoder.connection=pre_norm", "model.decoder.connection=pre_norm")
    code, _, err = command(*start, "model.heads=4", *orders, "decoding.max_length_extra=3")
    assert code == 0
    assert "model.activation=relu" in err
    assert "connection" not in err
    loaded = load_model(model)
    assert loaded.metadata["source_bos"] is True
    assert loaded.model.config.encoder.connection.type == "pre_norm"
    assert len(translated(command, tmp_path, model)) == 3


def test_neutron_with_several_languages(command, refused, tmp_path: Path) -> None:
    """A MuLang asks for the names of its languages, and then translates into each of them."""
    path, model = tmp_path / "mulang.safetensors", tmp_path / "model"
    save_file(parameters("nmt_mulang"), path)
    save_file(parameters("nmt_std_v2"), tmp_path / "std.safetensors")
    write_neutron_vocabulary(tmp_path / "common.vcb", 36)
    options = ("--vocabulary", tmp_path / "common.vcb", "-o", model, "model.heads=4")
    for checkpoint, names, text in (
        (path, (), "has parameters of 3 languages, and --languages names 0"),
        (path, ("--languages", "fr,de"), "has parameters of 3 languages, and --languages names 2"),
        (
            path,
            ("--languages", "fr,de,en", "data.directions=[en-de]"),
            "data.directions has the languages de, en",
        ),
        (tmp_path / "std.safetensors", ("--languages", "de,en"), "has parameters of 0 languages"),
    ):
        refused(2, text, "import", "neutron", checkpoint, *options, *names)
    limits = ("decoding.max_length_extra=3", "decoding.beam=2")
    code, _, err = command("import", "neutron", path, *options, "--languages", "fr,de,en", *limits)
    assert code == 0, err
    loaded = load_model(model)
    assert loaded.languages == ("de", "en", "fr")
    theirs = parameters("nmt_mulang")["enc.transo.weight"]
    assert loaded.model.transform is not None
    assert torch.equal(loaded.model.transform.weight, theirs[[1, 2, 0]])
    (tmp_path / "input.txt").write_text("p1 p2 p3\n")
    for language in ("de", "fr"):
        code, out, err = command("translate", model, "--to", language, "--input", tmp_path / "input.txt")
        assert (code, len(out.splitlines())) == (0, 1), err


def test_architecture_from_a_run_file(command, dictionary: Path, tmp_path: Path) -> None:
    """A run file gives architecture, languages and decoding; a bare file of tensors needs no more."""
    (tmp_path / "run.yaml").write_text(RUN)
    path, model = write_fairseq(tmp_path, "fairseq_postnorm", "safetensors"), tmp_path / "model"
    start = ("import", "fairseq", path, "--vocabulary", dictionary, "--run", tmp_path / "run.yaml")
    assert command(*start, "-o", model, "--quiet") == (0, f"{model}\n", "")
    loaded = load_model(model)
    assert loaded.metadata["target"] == "en"
    decoding = loaded.metadata["decoding"]
    assert decoding["beam"] == 2


def test_contradictions_of_run_file(command, dictionary: Path, tmp_path: Path) -> None:
    """What the checkpoint knows better is an error, unless the user insists on the command line."""
    (tmp_path / "run.yaml").write_text(RUN.replace("heads: 4", "heads: 8").replace("layers: 4", "layers: 5"))
    path = write_fairseq(tmp_path, "fairseq_postnorm", "pt")
    start = ("import", "fairseq", path, "--vocabulary", dictionary, "--run", tmp_path / "run.yaml")
    code, _, err = command(*start, "-o", tmp_path / "model")
    assert code == 4
    assert " is 4, not " in err
    assert not (tmp_path / "model").exists()
    code, _, err = command(*start, "-o", tmp_path / "model", "model.heads=8", "model.encoder.layers=4")
    assert code == 0, err


def test_mistakes_are_one_line(refused, dictionary: Path, tmp_path: Path) -> None:
    """Wrong families, files, folders and settings: exit code, one error line, nothing written."""
    path, model = write_fairseq(tmp_path, "fairseq_postnorm", "pt"), tmp_path / "model"
    (tmp_path / "small.txt").write_text("a 1\nb 1\n")
    (tmp_path / "full").mkdir()
    start = ("import", "fairseq", path, "--vocabulary")
    wrong: list[tuple[tuple[object, ...], int, str]] = [
        (("import", "joeynmt", path, "--vocabulary", dictionary, "-o", model), 2, "use fairseq or neutron"),
        ((*start, dictionary, "-o", tmp_path / "full"), 2, "exists already"),
        ((*start, tmp_path / "none.txt", "-o", model), 3, "no such file"),
        ((*start, tmp_path / "full", "-o", model), 3, "dict.de.txt"),
        ((*start, tmp_path / "small.txt", "-o", model), 4, "has 48 rows, but the vocabulary has 6 entries"),
        ((*start, dictionary, "-o", model, "model.heads=3"), 2, "3 heads do not divide"),
        ((*start, dictionary, "-o", model, "model.hedas=4"), 2, "heads"),
        ((*start, dictionary, "-o", model, "--target-codes", dictionary), 2, "needs --codes"),
        ((*start, dictionary, "-o", model, "--codes", tmp_path / "none"), 3, "no such file"),
        (("import", "neutron", path, "--vocabulary", dictionary, "-o", model), 4, "no standard Transformer"),
        (("import", "fairseq", dictionary, "--vocabulary", dictionary, "-o", model), 4, "PyTorch file"),
    ]
    for arguments, expected, text in wrong:
        refused(expected, text, *arguments)
        assert not model.exists()
