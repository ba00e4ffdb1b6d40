"""``deepwire export --format huggingface``: small models, read and run by transformers alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from untrained_models import proven, save_untrained

import deepwire
from deepwire.checkpoint.store import load_model
from deepwire.convert import export_format
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import BOS, EOS, PAD, Vocabularies
from deepwire.data.vocabulary_config import BpeConfig, UnigramConfig, WordsConfig

transformers = pytest.importorskip("transformers")

FORMAT, LINES = "huggingface", 10
Text = Mapping[str, Sequence[str]]
POST, PRE = ({"layers": 2, "connection": name} for name in ("post_norm", "pre_norm"))
NEUTRON = {"layers": 2, "connection": {"type": "pre_norm", "residual": "normalised"}}
FAIRSEQ = {"type": "sinusoidal", "layout": "halves", "first": 2}
DECODING = {"length_penalty": 0.8, "length_penalty_form": "average", "max_length_extra": 6}


def both(stack: Mapping[str, object]) -> dict[str, object]:
    return {"encoder": stack, "decoder": stack}


MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "post-norm": ("marian", both(POST)),
    "three matrices": ("marian", {**both(POST), "embeddings": {"tie": "none"}, "activation": "gelu"}),
    "inputs tied": ("marian", {**both(POST), "embeddings": {"tie": "inputs", "scale": False}}),
    "sides of two sizes": (
        "marian",
        {
            "encoder": {**POST, "layers": 3, "size": {"heads": 4}},
            "decoder": {**POST, "size": {"feed_forward": 24}},
        },
    ),
    "pre-norm": ("pegasus", {**both(PRE), "bias": {"attention": True, "feed_forward": "both"}}),
    "Neutron's order": ("bart", {**both(NEUTRON), "embeddings": {"start": "eos"}}),
    "learned positions": (
        "bart",
        {
            **both({"layers": 1, "connection": {"type": "post_norm", "embedding_norm": True}}),
            "positions": {"type": "learned", "first": 2},
            "max_length": 300,
        },
    ),
    "pre-norm, normalised embedding": (
        "mbart",
        {**both(PRE), "embeddings": {"norm": True, "tie": "inputs"}, "positions": FAIRSEQ},
    ),
    "positions of fairseq": (
        "m2m_100",
        {**both(PRE), "positions": FAIRSEQ, "bias": {"output": False}, "embeddings": {"start": "eos"}},
    ),
}


@pytest.fixture(scope="module")
def fallback(multi30k: Text) -> Vocabularies:
    return Vocabularies.learn_from_blocks(BpeConfig(size=400, byte_fallback=True), [pairs(multi30k)])


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, multi30k: Text) -> Path:
    """What to compare on, with letters that the vocabulary does not have."""
    folder = tmp_path_factory.mktemp("text")
    for language in ("de", "en"):
        lines = ["", "Ein </s> Hund 犬 <pad> ☃.", *multi30k[language][: LINES - 2]]
        (folder / f"text.{language}").write_text("\n".join(lines) + "\n")
    return folder


def pairs(multi30k: Text) -> list[Pair]:
    found = enumerate(zip(multi30k["de"][:300], multi30k["en"][:300], strict=True), 1)
    return [Pair(number, *both, 0) for number, both in found]


def saved(
    folder: Path, vocabularies: Vocabularies, settings: Mapping[str, object], **metadata: object
) -> Path:
    """A model that ends most of its sentences, with norms and biases that are none of the first."""
    config = {"d_model": 16, "heads": 2, "feed_forward": 32, "norm_eps": 1e-5, **settings}
    metadata = {"decoding": DECODING, **metadata}
    return save_untrained(folder, vocabularies, config, metadata, seed=5, likely={EOS: 3})


@pytest.mark.parametrize("name", MODELS)
def test_the_class_that_computes_the_same_is_found(
    name: str, fallback: Vocabularies, export, text: Path, tmp_path: Path
) -> None:
    model_type, settings = MODELS[name]
    sides = ("--text", text / "text.de", "--reference", text / "text.en")
    export(saved(tmp_path / "model", fallback, settings), *sides)
    proven(tmp_path / "out", LINES - 1)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == model_type


def there(folder: Path, lines: Sequence[str], tag: str = "", **settings: object) -> list[str]:
    """Translations as a user of transformers makes them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    batch = tokenizer([tag + line for line in lines], return_tensors="pt", padding=True)
    found = model.generate(**batch, **settings)
    texts: list[str] = tokenizer.batch_decode(found, skip_special_tokens=True, use_source_tokenizer=False)
    return texts


@pytest.mark.parametrize("name", ["joint", "separate"])
def test_text_in_and_text_out_without_deepwire(
    name: str, fallback: Vocabularies, multi30k: Text, export, text: Path, tmp_path: Path
) -> None:
    own = Vocabularies.learn_from_blocks(UnigramConfig(size=350, joint=False), [pairs(multi30k)])
    settings = MODELS["post-norm" if name == "joint" else "three matrices"][1]
    words = fallback if name == "joint" else own
    model = saved(tmp_path / "model", words, settings, source="de", target="en")
    export(model)
    loaded = load_model(model)
    lines = (text / "text.de").read_text().split("\n")[1:LINES]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for line in lines:
        assert tokenizer(line)["input_ids"] == [*loaded.vocabularies.source.encode(line), EOS]
    ours = deepwire.load(
        str(model), precision="fp32", settings={"max_length_ratio": 0, "max_length_extra": 40}
    )
    assert there(tmp_path / "out", lines, max_length=42) == ours.translate(lines)
    search = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    wanted = {"num_beams": 4, "length_penalty": 0.8, "early_stopping": True, "min_new_tokens": 1}
    assert search.items() >= wanted.items()
    assert search["suppress_tokens"] == [PAD, BOS, 3]


@pytest.mark.parametrize("place", ["source", "target", "both"])
def test_tags_of_languages_are_written_in_the_text_or_given_to_generate(
    place: str, joint: Vocabularies, export, text: Path, tmp_path: Path
) -> None:
    languages = {"languages": ["de", "en", "fr"], "directions": ["de-en", "de-fr", "fr-en"], "tag": place}
    model = saved(tmp_path / "model", joint, MODELS["pre-norm"][1], **languages)
    errors = export(model, "--text", text / "text.de", "--into", "fr")
    assert ("decoder_start_token_id" in errors) == (place != "source")
    lines = (text / "text.de").read_text().split("\n")[2:LINES]
    ours = deepwire.load(
        str(model), precision="fp32", settings={"max_length_ratio": 0, "max_length_extra": 40}
    )
    start = {} if place == "source" else {"decoder_start_token_id": joint.target.size + 2}
    tag = "" if place == "target" else ">>fr<<"
    assert there(tmp_path / "out", lines, tag, max_length=42, **start) == ours.translate(lines, to="fr")


def test_what_transformers_cannot_have_is_refused(
    joint: Vocabularies, export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tmp_path / "deep", joint, {"encoder": {"aggregation": "dlcl"}})
    errors = export(model, "--unchecked", code=4)
    assert "no class of transformers computes model.encoder.aggregation=dlcl" in errors
    words = Vocabularies.learn_from_blocks(WordsConfig(joint=True), [[Pair(1, "ein hund", "a dog", 0)]])
    errors = export(saved(tmp_path / "words", words, MODELS["post-norm"][1]), "--unchecked", code=4)
    assert "of the type words" in errors
    begun = saved(tmp_path / "bos", joint, MODELS["post-norm"][1], source_bos=True)
    errors = export(begun, "--unchecked", code=4)
    assert "begin with BOS" in errors
    monkeypatch.setattr(export_format, "find_spec", lambda _: None)
    errors = export(begun, "--unchecked", code=2)
    assert "pip install 'deepwire[hf]'" in errors
    assert not list(tmp_path.glob("*out*"))
