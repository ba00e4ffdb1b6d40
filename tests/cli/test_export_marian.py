"""``deepwire export --format marian``: models as Marian reads them, and by its equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from untrained_models import proven, save_untrained

from deepwire.checkpoint.store import load_model
from deepwire.convert.marian import read_npz, word_list
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import BOS, EOS, Vocabularies
from deepwire.data.vocabulary_config import WordsConfig

Text = Mapping[str, Sequence[str]]
FORMAT = "marian"
POSITIONS = {"type": "sinusoidal", "layout": "halves"}
POST: dict[str, object] = {"layers": 2, "connection": "post_norm"}
NEUTRON: dict[str, object] = {"layers": 1, "connection": {"type": "pre_norm", "residual": "normalised"}}
SSRU: dict[str, object] = {"encoder": POST, "decoder": {**POST, "mixer": "ssru"}}
MODELS: dict[str, dict[str, object]] = {
    "ssru": SSRU,
    "attention": {"encoder": POST, "decoder": POST, "embeddings": {"tie": "output"}, "activation": "silu"},
    "normalised embedding": {"encoder": NEUTRON, "decoder": NEUTRON, "embeddings": {"tie": "inputs"}},
    "unscaled": {
        "encoder": {**POST, "scale_embedding": False},
        "decoder": POST,
        "bias": {"attention": True, "output": False},
    },
}


def saved(folder: Path, words: Vocabularies, settings: Mapping[str, object], **metadata: object) -> Path:
    small = {"d_model": 16, "heads": 2, "feed_forward": 32, "positions": POSITIONS, **settings}
    embeddings = {"start": "zero", **settings.get("embeddings", {})}  # type: ignore[dict-item]
    return save_untrained(
        folder,
        words,
        {**small, "embeddings": embeddings},
        {"decoding": {"max_length_extra": 9}, **metadata},
        noise=0.2,
        likely={EOS: 2},
    )


@pytest.mark.parametrize("name", MODELS)
def test_marian_s_equations_give_the_same(name: str, joint: Vocabularies, export, tmp_path: Path) -> None:
    # Where there is no bias, PAD and BOS are as likely as words, and Marian is told never to choose them.
    export(saved(tmp_path / "model", joint, MODELS[name]))
    proven(tmp_path / "out")
    arrays, settings = read_npz(tmp_path / "out" / "model.npz")
    assert ("decoder_l1_rnn_Wf" in arrays) == (settings["dec-cell"] == "ssru") == (name == "ssru")
    assert settings["tied-embeddings-all"] == (name == "ssru")


def test_another_reader_of_marian_s_files_understands_them(
    joint: Vocabularies, export, tmp_path: Path
) -> None:
    """CTranslate2's converter, all but its sinusoids, whose frequencies are not Marian's."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    from ctranslate2.converters.marian import MarianConverter

    settings = {"encoder": POST, "decoder": POST}
    model = saved(tmp_path / "model", joint, settings)
    export(model, "--unchecked")
    pieces = joint.target.pieces(range(400))
    (tmp_path / "vocab.yml").write_text(word_list(pieces), encoding="utf-8")
    spec = MarianConverter(str(tmp_path / "out" / "model.npz"), [str(tmp_path / "vocab.yml")])._load()
    loaded = load_model(model).model
    for side, embedding in (("encoder", loaded.source_embedding), ("decoder", loaded.target_embedding)):
        table = embedding.vectors(0, 50)
        assert table is not None
        getattr(spec, side).position_encodings.encodings = table.numpy()
    spec.config.layer_norm_epsilon = 1e-6
    spec.validate()
    (tmp_path / "converted").mkdir()
    spec.save(str(tmp_path / "converted"))
    source, target = torch.arange(10, 16)[None], torch.arange(30, 37)[None]
    translator = ctranslate2.Translator(str(tmp_path / "converted"), device="cpu")
    text = [[[pieces[word] for word in row] for row in side] for side in (source, target)]
    (found,) = translator.score_batch(*text)
    end = torch.tensor([[EOS]])
    with torch.no_grad():
        expected = loaded.log_probs(
            torch.cat((source, end), 1), torch.cat((torch.tensor([[BOS]]), target), 1)
        ).gather(2, torch.cat((target, end), 1)[..., None])
    np.testing.assert_allclose(found.log_probs, expected.flatten(), atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"encoder": {"connection": "pre_norm"}, "decoder": {"connection": "pre_norm"}},
            "connection=pre_norm",
        ),
        ({**SSRU, "embeddings": {"start": "bos"}}, "embeddings.start=bos"),
        ({**SSRU, "positions": "sinusoidal"}, "encoder.positions.layout=interleaved"),
        ({**SSRU, "activation": "gelu"}, "activation=gelu"),
        (
            {**SSRU, "decoder": {**POST, "mixer": {"type": "ssru", "output_matrix": True}}},
            "output_matrix=true",
        ),
        ({**SSRU, "encoder": {**POST, "size": {"feed_forward": 8}}}, "different sizes"),
    ],
)
def test_what_marian_does_not_compute_is_refused_by_name(
    settings: dict[str, object], said: str, joint: Vocabularies, export, tmp_path: Path
) -> None:
    errors = export(saved(tmp_path / "model", joint, settings), "--unchecked", code=4)
    assert said in errors
    assert "embeddings: {start: zero}" in errors
    assert not list(tmp_path.glob("*out*"))


def test_a_vocabulary_of_words(multi30k: Text, export, tmp_path: Path) -> None:
    found = enumerate(zip(multi30k["de"][:50], multi30k["en"][:50], strict=True), 1)
    words = Vocabularies.learn_from_blocks(
        WordsConfig(joint=False), [[Pair(number, *both, 0) for number, both in found]]
    )
    settings = {**SSRU, "embeddings": {"tie": "none"}}
    errors = export(saved(tmp_path / "model", words, settings))
    assert "its vocabulary is of words" in errors
    assert "beam gets narrower with every hypothesis that ends" in errors
    lines = (tmp_path / "out" / "target.yml").read_text(encoding="utf-8").splitlines()
    assert '"</s>": 2' in lines
    assert "vocabs: [" in (tmp_path / "out" / "decoder.yml").read_text()
