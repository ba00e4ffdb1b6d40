"""Checkpoints of fairseq as models: the golden ones give their golden numbers, wrong ones a clear error."""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_checkpoints import ARGUMENTS, golden, imported, parameters, write_dictionary, write_fairseq
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepwire.convert.importers import IMPORTERS
from deepwire.convert.importers.foreign_checkpoint import ForeignCheckpoint, read_foreign_checkpoint
from deepwire.convert.importers.importer import read_vocabularies
from deepwire.data.subwords.base import BOS, EOS, PAD, UNK
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import DataError, ModelError
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

torch.set_num_threads(1)
FAIRSEQ = IMPORTERS["fairseq"]
SIZE = 48
TOLERANCE = 1e-5
THEIRS = {"pad": 1, "bos": 0, "eos": 2, "unk": 3}
# What names and shapes of a bare .safetensors file do not tell.
UNTOLD: Mapping[str, Mapping[str, Any]] = {
    "dlcl_prenorm_softmax": {
        "encoder": {"aggregation": {"type": "dlcl", "embedding_norm": "none", "softmax": True}},
        "decoder": {"aggregation": {"type": "dlcl", "embedding_norm": "none", "softmax": True}},
    },
    "gtrans_releasearch": {"activation": "gelu", "embeddings": {"scale": False}},
}
BARE = (
    *("fairseq_postnorm", "fairseq_prenorm", "gtrans_sparse", "gtrans_last", "gtrans_releasearch"),
    *(f"dlcl_prenorm{kind}" for kind in ("", "_softmax", "_vector", "_window2", "_fixed_avg", "_nonorm")),
)


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Vocabularies:
    path = write_dictionary(tmp_path_factory.mktemp("dictionary") / "dict.txt", SIZE - 4)
    return read_vocabularies(FAIRSEQ, path, path)


model_of = partial(imported, FAIRSEQ)


def ours(tokens: Tensor) -> Tensor:
    """fairseq's ids as ours."""
    return torch.where(tokens == 0, BOS, torch.where(tokens == 1, PAD, tokens))


def check_golden(model: TranslationModel, name: str) -> None:
    """Log-probabilities of whole sequences, of targets that begin with our BOS."""
    vectors = golden(name)
    source, target = ours(vectors["in/src_tokens_rightpad"]), ours(vectors["in/prev_output_tokens"]).clone()
    assert (target[:, 0] == EOS).all()
    target[:, 0] = BOS
    real = vectors["in/target"] != THEIRS["pad"]
    expected = vectors.get("out/mixture_logprob")
    if expected is None:
        expected = vectors["out/logits"].log_softmax(-1)
    # Entry i of the reordered vector is theirs: position 0 holds our BOS, position 1 our PAD.
    order = [BOS, PAD, *range(2, SIZE)]
    with torch.no_grad():
        found = model.log_probs(source, target)[..., order]
    assert (found - expected)[real].abs().max() < TOLERANCE


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, "pt") for name in ARGUMENTS),
        *((name, "cfg") for name in ARGUMENTS if name.startswith("gtrans")),
    ],
)
def test_golden_models(name: str, form: str, tmp_path: Path, vocabularies: Vocabularies) -> None:
    """The architecture comes from the file alone, and the model gives the golden numbers."""
    foreign = read_foreign_checkpoint(write_fairseq(tmp_path, name, form))
    told = FAIRSEQ.architecture(foreign)
    assert not told.needed
    assert told.known["model.heads"] == 4
    assert (told.known["data.source"], told.known["data.target"]) == ("de", "en")
    check_golden(model_of(foreign, vocabularies), name)


@pytest.mark.parametrize("name", BARE)
def test_bare_parameters(name: str, tmp_path: Path, vocabularies: Vocabularies) -> None:
    """Structure comes from names and shapes; what they cannot tell is said to be needed or assumed."""
    foreign = read_foreign_checkpoint(write_fairseq(tmp_path, name, "safetensors"))
    told = FAIRSEQ.architecture(foreign)
    assert told.needed == ("model.heads",)
    assert {"model.activation", "model.embeddings.scale"} <= set(told.assumed)
    changes = dict(UNTOLD.get(name, {}))
    if name.endswith("window2"):  # entries outside began at 0, but are learned like the others
        assert told.assumed["model.encoder.aggregation"]
    check_golden(model_of(foreign, vocabularies, **changes), name)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(5, 12),
    shared=st.sampled_from(["all", "output", "inputs", "none"]),
    old=st.booleans(),
    seed=st.integers(0, 5),
)
def test_embeddings_are_permuted(rows: int, shared: str, old: bool, seed: int) -> None:
    """Row by row: our special ids get the rows of theirs; BOS is read as their EOS, predicted as theirs."""
    generator = torch.Generator().manual_seed(seed)

    def table() -> Tensor:
        return torch.randn(rows, 8, generator=generator)

    source = table()
    target = source if shared in ("all", "inputs") else table()
    output = target if shared in ("all", "output") else table()
    tensors = {"encoder.embed_tokens.weight": source, "decoder.embed_tokens.weight": target}
    if shared in ("inputs", "none"):
        tensors["decoder.embed_out" if old else "decoder.output_projection.weight"] = output
    foreign = ForeignCheckpoint(Path("x.pt"), tensors, {})
    config = ModelConfig.model_validate({"d_model": 8, "heads": 2, "embeddings": {"tie": shared}})
    found = {name: value for name, (_, value) in FAIRSEQ.embeddings(config, foreign).items()}
    read_source, read_target, predicted = found.values()
    for lookup, original in ((read_source, source), (read_target, target)):
        assert torch.equal(lookup[[PAD, BOS, EOS, UNK]], original[[1, 0, 2, 3]])
        assert torch.equal(lookup[4:], original[4:])
    assert torch.equal(predicted[[PAD, BOS, EOS, UNK]], output[[1, 0, 2, 3]])
    assert torch.equal(predicted[4:], output[4:])
    embeddings = FAIRSEQ.final_config(config).embeddings
    assert (embeddings.tie, embeddings.start) == (shared, "eos")


def test_segmentation_with_codes(tmp_path: Path) -> None:
    """Pieces `x@@` and `x` of the dictionary are what the merges make of raw words."""
    (tmp_path / "codes").write_text("#version: 0.2\nh u\nhu n\nhun d</w>\n")
    (tmp_path / "dict.txt").write_text("hund 9\nhun@@ 5\nd 4\ne@@ 3\ne 2\nmadeupword0000 0\n")
    path = tmp_path / "dict.txt"
    vocabulary = read_vocabularies(FAIRSEQ, path, path, tmp_path / "codes").source
    assert vocabulary.encode("hund hune") == [4, 5, 8]
    assert vocabulary.decode([4, 5, 8]) == "hund hune"
    assert vocabulary.size == 10
    words = read_vocabularies(FAIRSEQ, tmp_path / "dict.txt", tmp_path / "dict.txt").source
    assert words.encode("hund hun@@ e") == [4, 5, 8]
    assert words.decode([4, 5, 8]) == "hund hune"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 3\nb\n", ":2: not a piece and its count"),
        ("a 3\na 2\n", ":2: 'a' occurs twice"),
        ("a three\n", ":1: not a piece"),
        ("a 1\n\nb 1\n", ":2: not a piece"),
    ],
)
def test_damaged_dictionaries(text: str, message: str, tmp_path: Path) -> None:
    """A line that is no piece with its count is named."""
    (tmp_path / "dict.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        FAIRSEQ.read_pieces(tmp_path / "dict.txt")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("decoder.layers.2.fc2.bias", None, "decoder.feed_forwards.2.output.bias has no value"),
        ("encoder.adapter.weight", torch.ones(2), "encoder.adapter.weight has no place"),
        ("encoder.layers.1.fc1.bias", torch.ones(7), r"encoder.layers.1.fc1.bias is \[7\], not \[64\]"),
        (
            "encoder.layers.1.fc1.bias",
            torch.full((64,), torch.nan),
            "encoder.layers.1.fc1.bias is not finite",
        ),
        ("encoder.layers.7.fc1.bias", torch.ones(64), "has no value"),
        ("encoder.embed_tokens.weight", torch.ones(50, 32), "has 50 rows, but the vocabulary has 48 entries"),
        ("encoder.layers.0.fc1.weight", None, "no Transformer of fairseq"),
    ],
)
def test_what_does_not_fit_is_named(
    name: str, value: Tensor | None, message: str, vocabularies: Vocabularies
) -> None:
    """Missing, unknown, misshapen and broken tensors are listed by name on one line."""
    tensors = {**parameters("fairseq_postnorm"), name: value}
    tensors = {key: each for key, each in tensors.items() if each is not None}
    with pytest.raises(ModelError, match=message) as error:
        model_of(ForeignCheckpoint(Path("model.pt"), tensors, {}), vocabularies)
    assert str(error.value).startswith("model.pt: ")
    assert "\n" not in str(error.value)


def test_weights_that_should_be_constant(vocabularies: Vocabularies) -> None:
    """Combination weights of a model whose arguments say they are fixed must be the fixed ones."""
    arguments = ARGUMENTS["dlcl_prenorm_fixed_avg"]
    with pytest.raises(ModelError, match=r"encoder.history.weight is learned"):
        model_of(ForeignCheckpoint(Path("x.pt"), parameters("dlcl_prenorm"), arguments), vocabularies)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"enc_calculate_num": 2}, "enc_calculate_num=2"),
        ({"encoder_history_type": "gru"}, "encoder_history_type=gru"),
        ({"arch": "lightconv_wmt_en_de"}, "arch=lightconv_wmt_en_de, which the importer does not know"),
        ({"cross_self_attention": True}, "cross_self_attention=True"),
        ({"decoder_group_type": "ls:sparse"}, "decoder_group_type=ls:sparse"),
    ],
)
def test_kinds_that_are_not_known(arguments: Mapping[str, object], message: str) -> None:
    """A model that computes something else under the same names is refused."""
    foreign = ForeignCheckpoint(
        Path("x.pt"), parameters("fairseq_prenorm"), {**ARGUMENTS["fairseq_prenorm"], **arguments}
    )
    with pytest.raises(ModelError, match=message):
        FAIRSEQ.architecture(foreign)


def test_sides_of_different_heads(vocabularies: Vocabularies) -> None:
    """Those of the encoder are its own, and the model computes with them."""
    arguments = {**ARGUMENTS["fairseq_prenorm"], "encoder_attention_heads": 2}
    foreign = ForeignCheckpoint(Path("x.pt"), parameters("fairseq_prenorm"), arguments)
    known = FAIRSEQ.architecture(foreign).known
    assert (known["model.heads"], known["model.encoder.size.heads"]) == (4, 2)
    assert "model.encoder.size.d_model" not in known
    config = model_of(foreign, vocabularies).config
    assert (config.size("encoder")[1], config.size("decoder")[1]) == (2, 4)


def test_files_of_old_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vocabularies: Vocabularies
) -> None:
    """Meters and numbers of numpy beside the parameters, in PyTorch's old file format, are passed over."""
    module = types.ModuleType("fairseq.meters")
    meter = type("AverageMeter", (), {"__module__": "fairseq.meters"})
    module.AverageMeter = meter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
    monkeypatch.setitem(sys.modules, "fairseq.meters", module)
    average = meter()
    average.sum = 3.5
    path = tmp_path / "checkpoint_last.pt"
    content = {
        "args": argparse.Namespace(**ARGUMENTS["fairseq_prenorm"]),
        "model": parameters("fairseq_prenorm"),
        "extra_state": {"train_meters": {"loss": average}, "best": np.float64(3.5)},
    }
    torch.save(content, path, _use_new_zipfile_serialization=False)
    monkeypatch.undo()
    check_golden(model_of(read_foreign_checkpoint(path), vocabularies), "fairseq_prenorm")
