from __future__ import annotations

import pytest
import torch

import deepwire
from deepwire.checkpoint.store import save_model
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.decoding.model_loading import (
    PRECISIONS,
    fastest_precision,
    load,
    load_models,
    number_formats,
    pick_device,
)
from deepwire.errors import ModelError, UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.ops import packed_linear
from deepwire.ops.packed_linear import has_kernels

TEXT = "ein hund zwei katzen"


@pytest.fixture
def save(tmp_path):
    """Writes a model directory of that name."""

    def write(name, text=TEXT, largest=None, shape=None, **metadata):
        vocabularies = Vocabularies.learn_from_blocks(WordsConfig(), [[Pair(1, text, "a dog two cats", 0)]])
        stack = {"layers": 1}
        config = ModelConfig(
            d_model=8, heads=2, feed_forward=8, encoder=stack, decoder=stack, **(shape or {})
        )
        torch.manual_seed(1)
        model = build_model(config, vocabularies.source.size, vocabularies.target.size)
        if largest is not None:
            with torch.no_grad():
                model.decoder.feed_forwards[0].input.weight[0, 0] = largest
        save_model(tmp_path / name, model, vocabularies, metadata)
        return tmp_path / name

    return write


@pytest.fixture
def all_maps_are_large(monkeypatch):
    """Weights of fewer bits in models of any size."""
    monkeypatch.setattr(packed_linear, "_LARGE", 0)


def test_settings_of_the_model_and_of_the_caller(save):
    path = save("one", decoding={"beam": 7, "length_penalty": 1.0})
    assert load(path).config.beam == 7
    changed = load(str(path), settings={"beam": 2, "n_best": 2}).config
    assert (changed.beam, changed.n_best, changed.length_penalty) == (2, 2, 1.0)


def test_a_line_is_cut_where_learned_positions_end(save):
    """Positions behind the last one would all be read as the last."""
    path = save("one", shape={"positions": "learned", "max_length": 3}, source_bos=True)
    words = load(path, settings={"max_length_ratio": 1, "max_length_extra": 0})
    assert words.config.max_source_length == 1
    assert words.translate(["zwei ein hund"]) == [" ".join(words.translate(["zwei", "ein", "hund"]))]
    assert load(save("other")).config.max_source_length == 1024
    with pytest.raises(UsageError, match="max_source_length=2: the model has learned 3 positions"):
        load(path, settings={"max_source_length": 2})
    with pytest.raises(UsageError, match=r"max_source_length=9: .* up to 1 subwords"):
        deepwire.load(path).translate(["zwei ein"], max_source_length=9)
    assert len(deepwire.load(path, settings={"max_source_length": 1}).translate(["zwei"], beam=2)) == 1


def test_bos_on_the_source_as_in_training(save, monkeypatch):
    translator = load(save("one", source_bos=True))
    sources = []
    start = translator.model.start

    def watched(source, **options):
        sources.append(source.tolist())
        return start(source, **options)

    monkeypatch.setattr(translator.model, "start", watched)
    translator.translate(["ein hund"])
    assert sources[0][0][0] == 1
    assert sources[0][0][-1] == 2


@pytest.mark.skipif(not has_kernels("int8"), reason="no kernels on this CPU")
@pytest.mark.usefixtures("all_maps_are_large")
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_weights_of_fewer_bits(save, precision):
    path = save("one", decoding={"max_length_ratio": 1, "max_length_extra": 3, "n_best": 2, "beam": 2})
    lines = ["ein hund", "", "zwei katzen ein"]
    exact, packed = (load(path, "cpu", kind) for kind in ("fp32", precision))
    pairs = [(line, answer.text) for line, answer in zip(lines, packed.translations(lines), strict=True)]
    for one, other in zip(packed.score(pairs), exact.score(pairs), strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, rel=0.02)
    for answer, score in zip(packed.translations(lines), packed.score(pairs), strict=True):
        assert answer.candidates[0].log_probability == pytest.approx(score.log_probability, abs=1e-4)
    with pytest.raises(UsageError, match="unknown precision 'fp8'"):
        load(path, precision="fp8")


@pytest.mark.parametrize(
    ("units", "kernels", "expected"),
    [(True, True, "bf16"), (False, True, "fp16"), (False, False, "fp32")],
)
def test_the_fastest_precision_of_a_cpu(save, monkeypatch, units, kernels, expected):
    monkeypatch.setattr("deepwire.ops.precision._cpu_bfloat16_pays", lambda: units)
    # What torch says where it has no kernels of FBGEMM.
    engines = ["qnnpack", "fbgemm"] if kernels else ["qnnpack"]
    monkeypatch.setattr(type(torch.backends.quantized), "supported_engines", engines)
    assert fastest_precision(torch.device("cpu")) == expected
    loaded = load_models([save("one")], "cpu", "auto", {})
    assert loaded.precision == expected
    assert number_formats(loaded.device, "auto") == PRECISIONS[expected]


def test_partners_must_fit(save):
    one, other = save("one"), save("other", text="ein hund drei katzen")
    with pytest.raises(ModelError, match=r"one and .*other have different vocabularies"):
        load([one, other])
    with pytest.raises(ModelError, match=r"one and .*bos differ in data\.source_bos"):
        load([one, save("bos", source_bos=True)])


@pytest.mark.parametrize("stored", [{"beam": 0}, [4]])
def test_damaged_stored_settings_name_the_model(save, stored):
    with pytest.raises(ModelError, match=r"one: (the )?stored decoding settings"):
        load(save("one", decoding=stored))


def test_devices():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device(None) == pick_device("auto")
    with pytest.raises(UsageError, match="is not there"):
        pick_device("cuda:63")
    with pytest.raises(UsageError, match="unknown device"):
        pick_device("gpu")
    with pytest.raises(UsageError, match="not supported"):
        pick_device("meta")
