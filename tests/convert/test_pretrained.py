"""A run that begins with a pretrained encoder of XLM-R's layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import sentencepiece
import torch
from pretrained_folder import DIM, HEADS, INNER, LAYERS, POSITIONS, TEXT, encoded, write_encoder
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor

from deepwire.cli.main import main
from deepwire.convert.importers.pretrained import read_pretrained, start_pretrained
from deepwire.data.subwords.base import SPECIAL_PIECES
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import UnigramConfig
from deepwire.errors import ModelError, UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.training.config import PretrainedSection, TrainingConfig

torch.set_num_threads(1)
SETTINGS: Mapping[str, object] = {
    "d_model": DIM,
    "heads": HEADS,
    "feed_forward": INNER,
    "activation": "gelu",
    "norm_eps": 1e-5,
    "dropout": 0.0,
    "max_length": POSITIONS - 2,
    "positions": {"type": "learned", "first": 2},
    "embeddings": {"norm": True, "scale": False},
    "bias": {"attention": True, "feed_forward": "both"},
    "encoder": {"layers": LAYERS, "connection": "post_norm"},
    "decoder": {"layers": 2, "connection": "post_norm"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("pretrained") / "xlmr")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> dict[str, Tensor]:
    """The encoder's parameters, without the name of the model."""
    found = load_file(folder / "model.safetensors")
    return {name.removeprefix("roberta."): value for name, value in found.items()}


@pytest.fixture(scope="module")
def same(folder: Path) -> Vocabularies:
    """The encoder's own vocabulary."""
    vocabulary = read_pretrained(folder).vocabulary
    return Vocabularies(vocabulary, vocabulary, joint=True, type="unigram")


@pytest.fixture(scope="module")
def other() -> Vocabularies:
    """A vocabulary of one's own: some pieces are also the encoder's."""
    pairs = [Pair(number, text, text[::-1], 0) for number, text in enumerate(TEXT * 3)]
    return Vocabularies.learn_from_blocks(
        UnigramConfig(size=50, byte_fallback=False, character_coverage=1.0), [pairs]
    )


def model_of(vocabularies: Vocabularies, **changes: object) -> TranslationModel:
    torch.manual_seed(1)
    config = ModelConfig.model_validate({**SETTINGS, **changes})
    return build_model(config, vocabularies.source.size, vocabularies.target.size).eval()


def test_the_encoder_computes_what_the_pretrained_one_does(
    folder: Path, theirs: dict[str, Tensor], same: Vocabularies
) -> None:
    """Post-norm layers, positions from 2, GELU, the norm of the embeddings: equal to a plain computation."""
    model = model_of(same)
    report = start_pretrained(PretrainedSection(encoder=folder), model, same)
    own = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.bpe.model"))
    text = "the dog sees a house"
    pieces = own.encode(text)
    ours = torch.tensor([[1, *same.source.encode(text), 2]])
    assert ours[0, 1:-1].tolist() == [piece + 1 for piece in pieces]
    ids = torch.tensor([[0, *(piece + 1 for piece in pieces), 2]])  # <s> is 0 there
    expected = encoded(theirs, ids)
    padded = torch.cat((ours, torch.zeros(1, 3, dtype=torch.long)), 1)
    with torch.no_grad():
        (found,), _ = model.encode(ours)
        (among_padding,), _ = model.encode(padded)
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(among_padding[:, : ours.size(1)], expected, atol=1e-5)
    assert report.layers == {"encoder": [1, 2, 3, 4], "decoder": [2, 4]}
    cross = [".crosses." in name or ".norms." in name or name == "head.bias" for name in report.untrained]
    assert cross
    assert all(cross)


@pytest.mark.parametrize(("decoder", "layers"), [("bottom", [0, 1]), ("spread", [1, 3]), ("none", [])])
def test_the_decoder_begins_with_layers_of_the_encoder(
    folder: Path, theirs: dict[str, Tensor], same: Vocabularies, decoder, layers: list[int]
) -> None:
    """Self-attention, feed-forward and their norms; cross-attention and its norm stay as they were."""
    untouched, model = model_of(same), model_of(same)
    report = start_pretrained(PretrainedSection(encoder=folder, decoder=decoder), model, same)
    found = dict(model.named_parameters())
    for number, layer in enumerate(layers):
        of = f"encoder.layer.{layer}."
        expected = torch.cat(
            [theirs[f"{of}attention.self.{part}.weight"] for part in ("query", "key", "value")]
        )
        assert torch.equal(found[f"decoder.mixers.{number}.query_key_value.weight"], expected)
        norms = [found[f"decoder.connection.norms.{3 * number + index}.bias"] for index in range(3)]
        assert torch.equal(norms[0], theirs[f"{of}attention.output.LayerNorm.bias"])
        assert torch.equal(norms[2], theirs[f"{of}output.LayerNorm.bias"])
        assert not norms[1].any()
    before = dict(untouched.named_parameters())
    for name in report.untrained:
        assert torch.equal(found[name], before[name]), name
    assert any(name.startswith("decoder.mixers.") for name in report.untrained) == (not layers)


@pytest.mark.parametrize("decoder", ["bottom", "spread"])
def test_a_decoder_layer_with_two_feed_forwards_begins_as_two_layers(
    folder: Path, theirs: dict[str, Tensor], same: Vocabularies, decoder
) -> None:
    stack = {"layers": 2, "connection": "post_norm", "inner_feed_forward": True}
    model = model_of(same, decoder=stack)
    report = start_pretrained(PretrainedSection(encoder=folder, decoder=decoder), model, same)
    assert report.layers["decoder"] == [2, 4]
    assert report.untrained == ["head.bias"]
    found = dict(model.named_parameters())
    for number in range(2):
        lower, upper = (f"encoder.layer.{2 * number + half}." for half in range(2))
        for kind, layer in (("inner_feed_forwards", lower), ("feed_forwards", upper)):
            expected = theirs[f"{layer}intermediate.dense.weight"]
            assert torch.equal(found[f"decoder.{kind}.{number}.input.weight"], expected)
        expected = theirs[f"{upper}attention.self.query.weight"]
        assert torch.equal(found[f"decoder.crosses.{number}.query.weight"], expected)
        norms = [found[f"decoder.connection.norms.{4 * number + index}.bias"] for index in range(4)]
        places = [
            f"{layer}{part}output.LayerNorm.bias" for layer in (lower, upper) for part in ("attention.", "")
        ]
        assert all(torch.equal(norm, theirs[place]) for norm, place in zip(norms, places, strict=True))


def test_another_vocabulary_takes_the_vectors_of_its_pieces(
    folder: Path, theirs: dict[str, Tensor], other: Vocabularies
) -> None:
    """Equal pieces have equal vectors; a new piece begins as the mean of the pieces that it is made of."""
    model = model_of(other)
    report = start_pretrained(PretrainedSection(encoder=folder), model, other)
    own = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.bpe.model"))
    table, words = model.source_embedding.table.weight, theirs["embeddings.word_embeddings.weight"]
    taken = 0
    for number in range(len(SPECIAL_PIECES), other.source.size):
        (piece,) = other.source.pieces([number])
        there = own.piece_to_id(piece)
        if there != own.unk_id():
            assert torch.equal(table[number], words[there + 1]), piece
            taken += 1
    assert 0 < taken < other.source.size
    assert report.vocabulary["joint"][0] == taken
    assert torch.equal(table[1:4], words[[0, 2, 3]])
    assert not table[0].any()
    assert model.head.table.weight is table


def test_norms_of_every_language_and_tags_behind_the_pieces(folder: Path, same: Vocabularies) -> None:
    """Each language begins with the pretrained norms; rows of tags behind the pieces stay untrained."""
    plain = model_of(same)
    start_pretrained(PretrainedSection(encoder=folder), plain, same)
    config = ModelConfig.model_validate({**SETTINGS, "languages": {"norm": True, "transform": "identity"}})
    size = same.source.size + 3
    many = build_model(config, size, size, languages=3).eval()
    tags = many.source_embedding.table.weight[-3:].clone()
    start_pretrained(PretrainedSection(encoder=folder), many, same)
    assert torch.equal(many.source_embedding.table.weight[-3:], tags)
    source = torch.tensor([[1, 9, 12, 30, 2], [1, 7, 7, 41, 2]])
    with torch.no_grad():
        (expected,), _ = plain.encode(source)
        (found,), _ = many.encode(source, languages=torch.tensor([2, 0]))
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_narrow_decoder_beside_a_pretrained_encoder(folder: Path, same: Vocabularies) -> None:
    """Only the encoder begins with it, and its side's measures must fit alone."""
    changes = {
        "d_model": 8,
        "heads": 2,
        "encoder": {
            "layers": 3,
            "connection": "post_norm",
            "size": {"d_model": DIM, "heads": HEADS},
        },
        "embeddings": {"norm": True, "scale": False, "tie": "output"},
    }
    model = model_of(same, **changes)
    report = start_pretrained(PretrainedSection(encoder=folder, decoder="none"), model, same)
    assert report.layers == {"encoder": [1, 2, 3]}
    assert "target_embedding.table.weight" in report.untrained
    with pytest.raises(UsageError, match=r"d_model=16 of the decoder, not 8"):
        start_pretrained(PretrainedSection(encoder=folder), model_of(same, **changes), same)


def test_first_position_of_another_kind(tmp_path: Path, same: Vocabularies) -> None:
    """A model of BERT's kind with XLM-R's pieces counts positions from 0 and has other names in front."""
    folder = write_encoder(tmp_path / "minilm", kind="bert", prefix="")
    theirs = load_file(folder / "model.safetensors")
    model = model_of(same, positions={"type": "learned", "first": 0}, max_length=POSITIONS)
    start_pretrained(PretrainedSection(encoder=folder), model, same)
    with torch.no_grad():
        (found,), _ = model.encode(torch.tensor([[1, 9, 12, 30, 2]]))
    assert torch.allclose(found, encoded(theirs, torch.tensor([[0, 9, 12, 30, 2]]), first=0), atol=1e-5)


def test_settings_that_differ_are_named_with_what_they_must_be(folder: Path, same: Vocabularies) -> None:
    """All at once."""
    model = model_of(
        same,
        activation="relu",
        encoder={"layers": 2, "connection": "pre_norm", "positions": "sinusoidal"},
        embeddings={"norm": True, "scale": True},
        max_length=50,
    )
    with pytest.raises(UsageError) as caught:
        start_pretrained(PretrainedSection(encoder=folder), model, same)
    for text in (
        "activation=gelu of the encoder, not relu",
        "connection.type=post_norm of the encoder, not pre_norm",
        "positions.type=learned of the encoder, not sinusoidal",
        "embeddings.scale=false of the decoder, not true",
        "max_length at most 20, not 50",
    ):
        assert text in str(caught.value)
    deep = model_of(same, encoder={"layers": 5, "connection": "post_norm"})
    with pytest.raises(UsageError, match=r"has 4 layers, fewer than the 5 of model\.encoder"):
        start_pretrained(PretrainedSection(encoder=folder), deep, same)


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    """The folder, each file of it, and a vocabulary that is none."""
    with pytest.raises(ModelError, match="no such folder"):
        read_pretrained(tmp_path / "nowhere")
    folder = write_encoder(tmp_path / "xlmr")
    pieces = folder / "sentencepiece.bpe.model"
    content = pieces.read_bytes()
    for damaged in (b"\x0a\xff", content[:-7], b"not a model"):
        pieces.write_bytes(damaged)
        with pytest.raises(ModelError, match="not a SentencePiece model, or damaged"):
            read_pretrained(folder)
    pieces.unlink()
    with pytest.raises(ModelError, match=r"sentencepiece\.bpe\.model: cannot read"):
        read_pretrained(folder)
    pieces.write_bytes(content)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors: cannot read"):
        read_pretrained(folder)
    (folder / "config.json").write_text(json.dumps([1]))
    with pytest.raises(ModelError, match=r"config\.json"):
        read_pretrained(folder)


def test_a_run_from_raw_text_to_raw_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One setting in the run file; the folder is needed at the beginning only."""
    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "xlmr")
    for name, texts in (("text.en", TEXT), ("text.xx", [text.upper() for text in TEXT])):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts * 4))
    vocabulary = {"type": "unigram", "size": 80, "byte_fallback": False, "character_coverage": 1.0}
    run = {
        "data": {
            "source": "en",
            "target": "xx",
            "train": "text",
            "source_bos": True,
            "vocabulary": vocabulary,
        },
        "model": {**SETTINGS, "dropout": 0.1},
        "training": {"pretrained": "xlmr", "max_updates": 2, "device": "cpu", "precision": "fp32"},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(run))
    precision = torch.get_float32_matmul_precision()
    try:
        assert main(["train", "run.yaml"]) == 0
        shown = capsys.readouterr().err
        assert "tensors taken over (encoder layers from 1, 2, 3, 4, decoder layers from 2, 4)" in shown
        assert "joint vocabulary: " in shown
        names = json.loads((tmp_path / "runs" / "run" / "start_from.json").read_text())["loaded"]
        assert "encoder.mixers.3.query_key_value.weight" in names
        # A run that has begun goes on wherever the encoder is by now, and without it.
        longer = ["train", "run.yaml", "-q", "training.max_updates=3"]
        (tmp_path / "xlmr").rename(tmp_path / "elsewhere")
        assert main([*longer, "training.pretrained.encoder=elsewhere"]) == 0
        assert main(["train", "run.yaml", "training.max_updates=4", "-q"]) == 0
        (tmp_path / "in.txt").write_text("the dog\n")
        assert main(["translate", "runs/run", "--input", "in.txt"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1
        prepared = sorted((tmp_path / "prepared").iterdir())
        text = (tmp_path / "text.en").read_text()
        (tmp_path / "text.en").write_text(text.replace("dog", "fox"))
        assert main(["train", "run.yaml", "--fresh"]) == 4
        assert "xlmr: no such folder" in capsys.readouterr().err
        # It is told before the text is prepared anew, which may take hours.
        assert sorted((tmp_path / "prepared").iterdir()) == prepared
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_flush_denormal(False)
    with pytest.raises(ValidationError, match="a run begins with one model"):
        TrainingConfig.model_validate({"pretrained": "xlmr", "start_from": "runs/run", "max_updates": 1})


def test_sizes_that_the_files_do_not_bear_out_are_refused_at_once(tmp_path: Path) -> None:
    """Neither a million layers of which there are few, nor a vocabulary of gigabytes."""
    folder = write_encoder(tmp_path / "x")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**12}))
    assert read_pretrained(folder).layers == LAYERS
    with (folder / "sentencepiece.bpe.model").open("wb") as file:
        file.truncate(1 << 34)
    with pytest.raises(ModelError, match="more than 16 MiB"):
        read_pretrained(folder)
