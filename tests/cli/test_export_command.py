"""``deepwire export``: a small model of real text, read and run by CTranslate2."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import ctranslate2
import pytest
import torch
from untrained_models import proven, save_untrained

import deepwire
from deepwire.checkpoint.store import LoadedModel, load_model, save_model
from deepwire.convert import parity
from deepwire.convert.ctranslate2 import CTranslate2
from deepwire.convert.export_format import ExportedModel, ExportFormat
from deepwire.convert.formats import FORMATS
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import EOS, Vocabularies
from deepwire.data.vocabulary_config import WordsConfig

LINES = 12
FORMAT = "ctranslate2"
Text = Mapping[str, Sequence[str]]


def saved(folder: Path, vocabularies: Vocabularies, metadata: dict[str, object], **changes: object) -> Path:
    stacks = {side: {"layers": 2, "connection": "post_norm"} for side in ("encoder", "decoder")}
    small = {"d_model": 16, "heads": 2, "feed_forward": 32, **stacks, **changes}
    return save_untrained(folder, vocabularies, small, metadata, noise=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, multi30k: Text, joint: Vocabularies) -> Path:
    """A model and some text."""
    folder = tmp_path_factory.mktemp("export")
    saved(folder / "model", joint, {"source_bos": True})
    for language in ("de", "en"):
        (folder / f"text.{language}").write_text("\n".join(["", *multi30k[language][: LINES - 1], ""]))
    return folder


def test_it_translates_the_same_there(export, folder: Path, tmp_path: Path) -> None:
    sides = ("--text", folder / "text.de", "--reference", folder / "text.en")
    export(folder / "model", *sides)
    proven(tmp_path / "out", LINES - 1)
    # As someone else would use it.
    vocabularies = Vocabularies.load(tmp_path / "out" / "vocabulary")
    line = (folder / "text.de").read_text().split("\n")[1]
    pieces = vocabularies.source.pieces(vocabularies.source.encode(line))
    translator = ctranslate2.Translator(str(tmp_path / "out"))
    (result,) = translator.translate_batch([pieces], beam_size=1, disable_unk=True)
    ours = deepwire.load(str(folder / "model"), precision="fp32", settings={"beam": 1}).translations([line])
    tokens = list(next(ours).candidates[0].tokens)
    assert tokens
    assert result.hypotheses[0][: len(tokens)] == tokens


class Again(ExportFormat):
    """Another format, added as CONTRIBUTING.md says; what it stands for is CTranslate2's."""

    name, quantizations = "again", ("float32",)
    inner = CTranslate2()

    def require(self, model: LoadedModel) -> None:
        self.inner.require(model)

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        self.inner.write(model, folder, quantization)

    def read(self, folder: Path) -> ExportedModel:
        return self.inner.read(folder)

    def version(self) -> str:
        return "Again 1"


def test_another_format_needs_one_line_in_the_table(
    export, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = (folder / "model", "--to", "again")
    assert "--format again: no such format" in export(*again, code=2)
    monkeypatch.setitem(cast("dict[str, ExportFormat]", FORMATS), "again", Again())
    errors = export(*again, "--quantization", "int8", code=2)
    assert "again has no such weights" in errors
    export(*again)
    assert proven(tmp_path / "out")["format"] == "Again 1"


def test_rounded_weights_leave_the_model_as_it_is(
    export, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(folder / "model")
    before = {name: value.clone() for name, value in loaded.model.named_parameters()}
    (tmp_path / "rounded").mkdir()
    CTranslate2().write(loaded, tmp_path / "rounded", "int8")
    assert all(torch.equal(value, before[name]) for name, value in loaded.model.named_parameters())
    monkeypatch.setattr(parity, "_MAX_TARGET", 256)  # beginnings differ more
    export(folder / "model", "--quantization", "int8", "--text", folder / "text.de", "--lines", "5")
    found = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert found["quantization"] == "int8"
    assert found["compared"]["lines"] == 4
    assert 1e-4 < found["compared"]["mean_difference"] < 0.1


def test_what_differs_too_much_is_rejected(export, folder: Path, tmp_path: Path) -> None:
    model = folder / "model"
    errors = export(model, "--most-different", "0", code=1)
    assert "out.rejected: ctranslate2 computes something else" in errors
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.rejected" / "model.bin").exists()
    export(model, "--quantization", "float32", "--lines", "3")
    exact = json.loads((tmp_path / "out" / "parity.json").read_text())["compared"]
    assert exact["allowed_mean_difference"] == 0.001
    shutil.rmtree(tmp_path / "out")
    export(model, "--unchecked")
    assert json.loads((tmp_path / "out" / "parity.json").read_text())["compared"] is None


@pytest.mark.parametrize("bias", [True, False])
def test_symbols_that_are_never_written_are_not_compared(
    bias: bool, export, joint: Vocabularies, tmp_path: Path
) -> None:
    """Our softmax counts PAD and BOS, which have no probability there, and are here as likely as words."""
    settings = {"d_model": 16, "heads": 2, "feed_forward": 32, "bias": {"output": bias}}
    model = save_untrained(tmp_path / "model", joint, settings, {}, noise=0.1, never=())
    export(model)
    found = json.loads((tmp_path / "out" / "parity.json").read_text())["compared"]
    assert found["largest_difference"] < 1e-4


def test_a_decoder_that_starts_with_the_end_symbol(
    export, joint: Vocabularies, folder: Path, tmp_path: Path
) -> None:
    """As imported models of fairseq do."""
    model = saved(tmp_path / "model", joint, {}, embeddings={"start": "eos"})
    export(model, "--text", folder / "text.de")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["decoder_start_token"] == "</s>"
    proven(tmp_path / "out", LINES - 1)


def test_empty_translations_are_no_comparison(export, folder: Path, tmp_path: Path) -> None:
    """Both programs translate everything by a space alone, and agree on that."""
    loaded = load_model(folder / "model")
    with torch.no_grad():
        (space,) = (n for n in range(400) if loaded.vocabularies.target.pieces([n]) == ["\u2581"])
        loaded.model.head.bias[[space, EOS]] = torch.tensor([900.0, 1000.0])
    save_model(tmp_path / "silent", loaded.model, loaded.vocabularies, loaded.metadata)
    errors = export(tmp_path / "silent", code=4)
    assert "translations of all 6 lines are empty" in errors
    assert not list(tmp_path.glob("out*"))


def test_what_it_cannot_be_is_refused(export, tmp_path: Path) -> None:
    words = Vocabularies.learn_from_blocks(WordsConfig(joint=True), [[Pair(1, "ein <s> hund", "a dog", 0)]])
    errors = export(saved(tmp_path / "words", words, {}), "--unchecked", code=4)
    assert "has <s> twice" in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--unchecked", "--to", "tflite"), 2, "--format tflite: no such format"),
        (("--unchecked", "--quantization", "int4"), 2, "use float32, float16"),
        (("--unchecked", "--text", "text"), 2, "--unchecked compares nothing"),
        (("--reference", "text"), 2, "no text to compare translations on"),
        (("--text", "nothing"), 3, "nothing"),
    ],
)
def test_a_wrong_command_says_what_to_do(
    refused, folder: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    refused(code, said, "export", folder / "model", "-o", "out", *options)


def test_what_another_export_has_written_meanwhile_stays(
    export, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(self: CTranslate2, model: LoadedModel, folder: Path, quantization: str) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "model.bin").write_text("of another")

    monkeypatch.setattr(CTranslate2, "write", write)
    errors = export(folder / "model", "--unchecked", code=2)
    assert "out: exists already" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "model.bin").read_text() == "of another"
