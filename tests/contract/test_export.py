"""Models are exported to three formats, each compared with ours by the export itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from contract_runs import command, run_file, succeed, write_text
from contract_texts import copy_of_old

import deepwire


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_old(tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer that other programs compute, too; its text is beside it."""
    folder = tmp_path_factory.mktemp("plain")
    write_text(folder)
    (folder / "run.yaml").write_text(run_file("post_norm", embeddings={"norm": False}), encoding="utf-8")
    deepwire.train(folder / "run.yaml", run=folder / "run", quiet=True, training={"max_updates": 15})
    return folder


def export(folder: Path, model: str, form: str, text: str) -> dict[str, object]:
    """Export and give what the comparison found."""
    options = ("-o", form, "--format", form, "--text", text, "--lines", 4, "--quiet")
    succeed("export", model, *options, cwd=folder)
    found: dict[str, object] = json.loads((folder / form / "parity.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("form", ["ctranslate2", "huggingface"])
def test_a_plain_transformer_for_other_programs(plain: Path, form: str) -> None:
    pytest.importorskip({"ctranslate2": "ctranslate2", "huggingface": "transformers"}[form])
    assert export(plain, "run", form, "valid.de")
    assert list((plain / form).glob("model.*"))


def test_any_model_as_a_torch_program(old: Path) -> None:
    assert export(old, "model", "torch_export", "text.de")
    assert (old / "torch_export/translate.py").exists()


def test_what_a_format_cannot_say_is_refused(old: Path) -> None:
    done = command("export", "model", "-o", "refused", "--format", "ctranslate2", "--unchecked", cwd=old)
    assert done.returncode == 4
    assert "depth_lstm" in done.stderr or "dlcl" in done.stderr
    assert not (old / "refused").exists()
