"""``deepwire export --format argos``: a package, installed and run by Argos' rules."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import ctranslate2
import pytest
import sentencepiece
from untrained_models import save_untrained

import deepwire
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import EOS, UNK, Vocabularies
from deepwire.data.vocabulary_config import BpeConfig

Text = Mapping[str, Sequence[str]]
NAME = "translate-de_en-1_0"
FORMAT = "argos"


def saved(
    folder: Path, vocabularies: Vocabularies, bias: bool = True, unknown: float = 1, **metadata: object
) -> Path:
    """A model that writes UNK as `unknown` says."""
    stack = {"layers": 1, "connection": "post_norm"}
    tie = "all" if vocabularies.joint else "none"
    settings = {"d_model": 16, "heads": 2, "feed_forward": 32, "encoder": stack, "decoder": stack}
    settings |= {"embeddings": {"tie": tie}, "bias": {"output": bias}}
    languages = {"source": "de", "target": "en"}
    return save_untrained(
        folder,
        vocabularies,
        settings,
        {**languages, "decoding": {"max_length_extra": 9}, **metadata},
        noise=0.4,
        likely={EOS: 4, UNK: unknown},
    )


def translated(folder: Path, text: str) -> list[str]:
    """Lines of a text as Argos translates them: one SentencePiece model, beam 4, length penalty 0.2."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(folder / "model"))
    found = translator.translate_batch(
        [pieces.encode(line, out_type=str) for line in text.split("\n")],
        replace_unknowns=True,
        max_batch_size=32,
        batch_type="tokens",
        beam_size=4,
        num_hypotheses=4,
        length_penalty=0.2,
        return_scores=True,
    )
    return [pieces.decode(each.hypotheses[0]).replace("_", " ").strip() for each in found]


def test_the_package_is_installed_and_translates(
    joint: Vocabularies, multi30k: Text, export, tmp_path: Path
) -> None:
    model = saved(tmp_path / "model", joint, unknown=-30)
    errors = export(model, "--from-name", "German", "--to-name", "English")
    assert "length penalty of 0.2" in errors
    # Argos unpacks the archive into its folder of packages, and looks for metadata in each folder there.
    with zipfile.ZipFile(tmp_path / "out" / f"{NAME}.argosmodel") as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {NAME}
        archive.extractall(tmp_path / "packages")
    (installed,) = (tmp_path / "packages").iterdir()
    metadata = json.loads((installed / "metadata.json").read_text())
    assert metadata.items() >= {"from_code": "de", "to_code": "en", "from_name": "German"}.items()
    assert metadata.items() >= {"to_name": "English", "type": "translate", "package_version": "1.0"}.items()
    lines = list(multi30k["de"][:6])
    settings = {"beam": 4, "length_penalty": 0.2, "length_penalty_form": "average", "max_length_extra": 200}
    ours = deepwire.load(str(model), precision="fp32", settings={**settings, "max_length_ratio": 0})
    there = translated(installed, "\n".join(lines))
    here = ours.translate(lines)
    assert there == here
    assert not any("\u2047" in text for text in there)


@pytest.mark.parametrize("bias", [True, False])
def test_unknown_is_never_written(bias: bool, joint: Vocabularies, export, tmp_path: Path) -> None:
    export(saved(tmp_path / "model", joint, bias))
    with zipfile.ZipFile(tmp_path / "out" / f"{NAME}.argosmodel") as archive:
        archive.extractall(tmp_path / "packages")
    translator = ctranslate2.Translator(str(tmp_path / "packages" / NAME / "model"))
    (scored,) = translator.score_batch([["▁ein"]], [["<unk>"]])
    assert scored.log_probs[0] < -1e6


def test_what_argos_cannot_have_is_refused(
    joint: Vocabularies, multi30k: Text, export, tmp_path: Path
) -> None:
    pairs = [Pair(n, *both, 0) for n, both in enumerate(zip(multi30k["de"], multi30k["en"], strict=True), 1)]
    separate = Vocabularies.learn_from_blocks(BpeConfig(size=400, joint=False), [pairs[:300]])
    for metadata, vocabularies, said in (
        ({}, separate, "the vocabulary is one for each side"),
        ({"source_bos": True}, joint, "begin with BOS"),
        ({"source": "source", "target": "target"}, joint, "does not say its languages"),
        ({"source": None}, joint, "does not say its languages"),
    ):
        model = saved(tmp_path / said[:9], vocabularies, **metadata)
        errors = export(model, code=4)
        assert said in errors
    assert not list(tmp_path.glob("*out*"))
    errors = export(model, "--format", "onnx", "--from-name", "German", code=2)
    assert "--format onnx: has no names of languages" in errors
