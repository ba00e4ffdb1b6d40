"""``deepwire export`` of a decoder alone and of language models; models that read documents are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from untrained_models import proven

import deepwire
from deepwire.checkpoint.store import save_model
from deepwire.cli.main import main
from deepwire.data.context import ContextConfig
from deepwire.data.vocabulary import BOS, PAD, Vocabularies
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

PIECES = 400
Text = Mapping[str, Sequence[str]]
SMALL = {"d_model": 16, "heads": 2, "feed_forward": 16}
ALONE = {**SMALL, "architecture": "decoder_only"}
DECODING = {"max_length_extra": 8, "max_length_ratio": 0.5, "beam": 3}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(
    joint: Vocabularies, config: dict[str, object], source: int, target: int, **metadata: object
) -> None:
    """A model in ``model`` whose answers depend on all that it reads."""
    torch.manual_seed(5)
    model = build_model(ModelConfig.model_validate(config), source, target)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        assert model.head.bias is not None
        model.head.bias[PAD] = -30  # as training leaves it
        # Between lines of a document, or never.
        model.head.bias[BOS] = 20 if metadata.get("text") == {"unit": "documents"} else -30
    save_model(Path("model"), model, joint, {"decoding": DECODING, **metadata})


def exported(folder: str, lines: Sequence[str], format_name: str) -> None:
    """Export and compare; it fails where not all is the same."""
    Path("text").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert main(["export", "model", "-o", folder, "--format", format_name, "--text", "text", "--quiet"]) == 0
    proven(Path(folder), sum(map(bool, lines)))


def printed(folder: str, lines: Sequence[str], *options: str) -> list[str]:
    """What the host prints for lines, where deepwire cannot be imported."""
    forbidding = (
        "import sys, runpy; sys.modules.update(deepwire=None); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", forbidding, f"{folder}/translate.py", *options]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


@pytest.mark.slow
def test_a_decoder_alone_reads_the_source_in_one_pass(
    here: Path, joint: Vocabularies, multi30k: Text
) -> None:
    """By onnxruntime, sentences of unlike length together."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    save(joint, {**ALONE, "decoder": {"layers": 1, "mixer": "gla"}}, PIECES, PIECES, source_bos=True)
    lines = [*multi30k["de"][:4], "", "Hund", "Kind"]
    exported("out", lines, "onnx")
    assert {path.name for path in Path("out").glob("*.onnx")} == {"prompt.onnx", "step.onnx"}
    ours = deepwire.load("model", precision="fp32", device="cpu").translate(lines)
    assert any(ours)
    assert printed("out", lines) == ours


@pytest.mark.slow
def test_a_language_model_goes_on_with_text(here: Path, joint: Vocabularies, multi30k: Text) -> None:
    config = {**ALONE, "decoder": {"layers": 1, "mixer": ["self_attention"]}}
    save(joint, config, 0, PIECES, text={"unit": "lines"})
    lines = list(multi30k["en"][:5])
    exported("out", lines, "torch_export")
    prompts = ["A man", "", "Two dogs run", "A man"]
    model = deepwire.load("model", precision="fp32", device="cpu")
    assert printed("out", prompts) == model.generate(prompts)
    by_beam = model.generate(prompts, beam=3)
    assert len(set(by_beam)) > 1
    assert printed("out", prompts, "--beam", "3") == by_beam


def test_a_language_model_writes_line_breaks(here: Path, joint: Vocabularies) -> None:
    """In documents BOS stands for one, which no search predicts by itself."""
    from deepwire.convert.translate import Translator

    save(joint, {**ALONE, "decoder": {"layers": 1}}, 0, PIECES, text={"unit": "documents"})
    exported("out", ["A man", "Two dogs run"], "torch_export")
    prompts = ["A man\nsleeps", "Two"]
    ours = deepwire.load("model", precision="fp32", device="cpu").generate(prompts)
    theirs = [each[0][0] for each in Translator("out").generate(prompts)]
    assert theirs == ours
    assert any(text.count("\n") > prompt.count("\n") for prompt, text in zip(prompts, theirs, strict=True))


def test_document_context_is_refused(here: Path, joint: Vocabularies, refused) -> None:
    config = {**SMALL, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
    context = ContextConfig(source=1, max_length=40)
    save(joint, config, PIECES + 1, PIECES + 1, **context.to_metadata())
    refused(
        4,
        "was trained with data.context",
        "export",
        "model",
        "-o",
        "out",
        "--format",
        "torch_export",
        "--unchecked",
    )
    assert {path.name for path in here.iterdir()} == {"model"}


def test_others_refuse_them(here: Path, joint: Vocabularies, refused) -> None:
    pytest.importorskip("ctranslate2")
    save(joint, {**ALONE, "decoder": {"layers": 1}}, 0, PIECES, text={"unit": "lines"})
    refused(4, "is a language model, and ctranslate2 has none", "export", "model", "-o", "out", "--unchecked")
    assert {path.name for path in here.iterdir()} == {"model"}
