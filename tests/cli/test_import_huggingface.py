"""``deepwire import huggingface``: folders that transformers wrote, as models with equal probabilities."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import sentencepiece
import torch

import deepwire
from deepwire.api import finetune as finetuning
from deepwire.checkpoint.store import LoadedModel, load_model
from deepwire.data.subwords.sentencepiece import PieceTableVocabulary
from deepwire.data.vocabulary import BOS, EOS, PAD, Vocabularies

transformers = pytest.importorskip("transformers")

Text = Mapping[str, Sequence[str]]
SMALL = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 128,
    "num_beams": 3,
    "max_length": 40,
}
CLASSES = {
    "marian": transformers.MarianMTModel,
    "pegasus": transformers.PegasusForConditionalGeneration,
    "bart": transformers.BartForConditionalGeneration,
    "mbart": transformers.MBartForConditionalGeneration,
    "m2m_100": transformers.M2M100ForConditionalGeneration,
}
FAIRSEQ = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, multi30k: Text) -> Path:
    """A SentencePiece model of each side, with the numbers that SentencePiece gives."""
    folder = tmp_path_factory.mktemp("spm")
    for name, language, kind in (("source", "de", "unigram"), ("target", "en", "bpe")):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(multi30k[language][:300]),
            model_prefix=str(folder / name),
            model_type=kind,
            vocab_size=200,
            character_coverage=0.99,
            minloglevel=5,
        )
    return folder


def table(models: Path, *, fairseq: bool) -> dict[str, int]:
    """Numbers as OPUS-MT has them: EOS, UNK, the pieces of both sides but one, a tag, PAD; or fairseq's."""
    pieces: list[str] = []
    for side in ("source", "target"):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(models / f"{side}.model"))
        pieces += [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
    ordinary = list(dict.fromkeys(pieces))[:-1]
    first: tuple[str, ...] = ("</s>", "<unk>")
    last: tuple[str, ...] = (">>fra<<", "<pad>")
    if fairseq:
        first, last = ("<s>", "<pad>", "</s>", "<unk>"), (">>fra<<",)
    return {piece: number for number, piece in enumerate((*first, *ordinary, *last))}


def foreign(folder: Path, models: Path, kind: str, **settings: object) -> Path:
    """A model that transformers made and saved, with the tokenizer files of OPUS-MT."""
    numbers = table(models, fairseq=kind in ("bart", "mbart", "m2m_100"))
    symbols = {"pad_token_id": numbers["<pad>"], "eos_token_id": 0, "forced_eos_token_id": None}
    symbols |= {"decoder_start_token_id": numbers["<pad>"], "bos_token_id": None}
    if "<s>" in numbers:
        symbols |= FAIRSEQ
    given = {**SMALL, **symbols, "vocab_size": len(numbers), "scale_embedding": True, **settings}
    config = CLASSES[kind].config_class(**given)
    torch.manual_seed(3)
    model = CLASSES[kind](config)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in name or kind in ("bart", "mbart"):
                value.add_(0.3 * torch.randn_like(value))
        if kind != "m2m_100":
            model.final_logits_bias[:, symbols["eos_token_id"]] += 5
    model.generation_config = transformers.GenerationConfig(
        num_beams=3,
        max_length=40,
        length_penalty=1.2,
        early_stopping=True,
        **symbols,
        bad_words_ids=[[numbers["<pad>"]], [numbers["<unk>"]]],
    )
    model.save_pretrained(folder)
    for side in ("source", "target"):
        shutil.copyfile(models / f"{side}.model", folder / f"{side}.spm")
    (folder / "vocab.json").write_text(json.dumps(numbers))
    tokenizer = {"tokenizer_class": "MarianTokenizer", "source_lang": "de", "target_lang": "en"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


CHANGED: Mapping[str, Mapping[str, object]] = {
    "another type": {"model_type": "t5"},
    "symbols elsewhere": {"pad_token_id": 10**9, "decoder_start_token_id": 10**9},
}
"""What a wrong folder says in its `config.json`."""


def difference(folder: Path, imported: LoadedModel, lines: Sequence[str]) -> float:
    """Largest difference of a log-probability of the first words of translations, whatever their numbers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    ours, worst = imported.vocabularies, 0.0
    pieces = [tokenizer.convert_ids_to_tokens(number) for number in range(model.config.vocab_size)]
    known = {piece: number for number, piece in enumerate(ours.target.pieces(range(ours.target.size)))}
    symbols = {"<s>": BOS, "<pad>": PAD, "</s>": EOS, "<unk>": 3}
    numbers = [symbols.get(piece, known.get(piece, 3)) for piece in pieces]
    for line in lines:
        batch = tokenizer(line, return_tensors="pt")
        target = [model.config.decoder_start_token_id, 9, 30, 12]
        with torch.no_grad():
            logits = model(**batch, decoder_input_ids=torch.tensor([target])).logits
            source = torch.tensor([[*ours.source.encode(line), EOS]])
            begun = torch.tensor([[BOS, *(numbers[number] for number in target[1:])]])
            found = imported.model.log_probs(source, begun)[0, :, numbers]
        worst = max(worst, float((logits[0].log_softmax(-1) - found).abs().max()))
    return worst


MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "OPUS-MT": ("marian", {"activation_function": "swish"}),
    "Marian with three matrices": (
        "marian",
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "scale_embedding": False},
    ),
    "Pegasus": ("pegasus", {}),
    "BART": ("bart", {"activation_function": "relu"}),
    "mBART": ("mbart", {}),
    "M2M-100": ("m2m_100", {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_transformers_wrote_has_equal_probabilities_here(
    name: str, models: Path, multi30k: Text, command, tmp_path: Path
) -> None:
    kind, settings = MODELS[name]
    folder = foreign(tmp_path / "there", models, kind, **settings)
    code, _, errors = command("import", "huggingface", folder, "--output", tmp_path / "imported")
    assert code == 0, errors
    imported = load_model(tmp_path / "imported")
    lines = [*multi30k["de"][:4], ">>fra<<Ein Hund.", "Ein ☃ Hund"]
    assert difference(folder, imported, lines) < 2e-5
    stored = imported.metadata["decoding"]
    assert isinstance(stored, dict)
    wanted = {"beam": 3, "length_penalty": 1.2, "length_penalty_form": "average", "min_length": 0}
    assert stored.items() >= {**wanted, "unknown_penalty": None}.items()


def test_there_and_back_is_the_same_model(models: Path, multi30k: Text, command, tmp_path: Path) -> None:
    folder = foreign(tmp_path / "there", models, "marian", activation_function="swish")
    assert command("import", "huggingface", folder, "-o", tmp_path / "imported")[0] == 0
    text = tmp_path / "text.de"
    lines = list(multi30k["de"][:8])
    text.write_text("\n".join(lines))
    code, _, errors = command(
        "export", tmp_path / "imported", "-o", tmp_path / "back", "--format", "huggingface", "--text", text
    )
    assert code == 0, errors
    found = []
    for each in (folder, tmp_path / "back"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(each)
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(each)
        given = model.generate(**tokenizer(lines, return_tensors="pt", padding=True), max_length=30)
        found.append(tokenizer.batch_decode(given, skip_special_tokens=True, use_source_tokenizer=False))
    assert found[0] == found[1]
    # transformers cuts at the greatest length, where we let a sentence end.
    ended = [number for number, row in enumerate(given.tolist()) if EOS in row[1:]]
    assert len(ended) > 3
    ours = deepwire.load(str(tmp_path / "imported"), precision="fp32", settings={"max_length_extra": 28})
    texts = ours.translate(lines)
    assert [texts[number] for number in ended] == [found[0][number] for number in ended]


def test_the_vocabulary_survives_and_keeps_tags(models: Path, tmp_path: Path, command) -> None:
    folder = foreign(tmp_path / "there", models, "marian")
    assert command("import", "huggingface", folder, "-o", tmp_path / "imported")[0] == 0
    both = Vocabularies.load(tmp_path / "imported" / "vocabulary")
    assert both.joint
    assert both.source is not both.target
    assert isinstance(both.source, PieceTableVocabulary)
    tagged = both.source.encode(">>fra<<Ein Hund")
    assert both.source.pieces(tagged)[0] == ">>fra<<"
    assert tagged[1:] == both.source.encode("Ein Hund")
    assert both.source.decode(tagged) == "Ein Hund"
    assert both.source.encode(">>xyz<<") != tagged[:1]


def test_tags_may_be_named_only_among_the_special_tokens(models: Path, tmp_path: Path, command) -> None:
    """As in the folders of NLLB and M2M-100, in the order of their numbers."""
    folder = foreign(tmp_path / "there", models, "m2m_100")
    numbers = json.loads((folder / "vocab.json").read_text())
    first = numbers.pop(">>fra<<")
    (folder / "vocab.json").write_text(json.dumps(numbers))
    special = {"additional_special_tokens": ["<unk>", "fra_Latn", "deu_Latn"]}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    assert command("import", "huggingface", folder, "-o", tmp_path / "ours").code == 0
    target = load_model(tmp_path / "ours").vocabularies.target
    assert target.tag_of("fra_Latn Un chien") == "fra_Latn "
    assert target.encode("fra_Latn Un chien")[0] == first


@pytest.mark.parametrize("tag", ["", ">>fra<< "])
def test_tags_are_wanted_and_kept_when_it_is_trained_further(
    tag: str, models: Path, multi30k: Text, command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("import", "huggingface", foreign(Path("there"), models, "m2m_100"), "-o", "ours").code == 0
    for side in ("de", "en"):
        Path(f"new.{side}").write_text("".join(f"{tag}{line}\n" for line in multi30k[side][:20]))
    compared: list[Sequence[str]] = []
    monkeypatch.setattr(finetuning, "compare", lambda _, references, **__: compared.append(references))
    monkeypatch.setattr(finetuning, "as_text", str)
    typed = "finetune ours --train new --valid new training.stop_after=1u"
    code, _, errors = command(*typed.split())
    assert (code, "reads a tag such as >>fra<<" in errors) == (0, not tag), errors
    assert compared == [list(multi30k["en"][:20])]


def test_the_direction_is_asked_for_where_a_model_does_not_say_its_languages(
    models: Path, command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    foreign(Path("there"), models, "m2m_100")
    Path("there/tokenizer_config.json").write_text('{"tokenizer_class": "NllbTokenizer"}')
    assert command("import", "huggingface", "there", "-o", "ours").code == 0
    for side in ("de", "en"):
        Path(f"new.{side}").write_text("Haus\n")
    code, _, errors = command("finetune", "ours", "--train", "new")
    assert (code, "--direction" in errors) == (3, True), errors


@pytest.mark.parametrize("option", ["--vocabulary", "--target-vocabulary", "--codes"])
def test_files_of_another_vocabulary_are_refused(option: str, models: Path, refused, tmp_path: Path) -> None:
    folder = foreign(tmp_path / "there", models, "marian")
    options = (option, "nothing", *(["--target-codes", "none"] if option == "--codes" else []))
    refused(
        2, "has its own vocabulary", "import", "huggingface", folder, "-o", tmp_path / "imported", *options
    )
    assert not (tmp_path / "imported").exists()


def test_sizes_are_those_of_the_weights(models: Path, command, tmp_path: Path) -> None:
    """Whatever `config.json` says of them takes no memory."""
    folder = foreign(tmp_path / "there", models, "marian")
    config = json.loads((folder / "config.json").read_text())
    wrong = dict.fromkeys(("vocab_size", "d_model", "decoder_layers", "decoder_ffn_dim"), 10**9)
    (folder / "config.json").write_text(json.dumps(config | wrong))
    assert command("import", "huggingface", folder, "-o", tmp_path / "imported")[0] == 0
    assert load_model(tmp_path / "imported").model.config.d_model == 16


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("no folder", 4, "is no folder"),
        ("another type", 4, "a model of the type 't5', which is not known here"),
        ("no weights", 4, "has no model.safetensors"),
        ("no SentencePiece", 4, "has no SentencePiece model"),
        ("damaged table", 4, "vocab.json: is not JSON"),
        ("symbols elsewhere", 4, "symbols have the numbers [1000000000"),
        ("huge table of nothing", 4, "model.safetensors: tensor model.shared.weight"),
        ("a tensor more", 4, "encoder.layers.0.adapter.weight"),
        ("a tensor less", 4, "has no value"),
    ],
)
def test_a_wrong_folder_is_refused_in_one_line(
    change: str, code: int, said: str, models: Path, refused, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    folder = foreign(tmp_path / "there", models, "marian")
    config = json.loads((folder / "config.json").read_text())
    config |= CHANGED.get(change, {})
    tensors = load_file(folder / "model.safetensors")
    if change == "no folder":
        shutil.rmtree(folder)
    elif change == "no SentencePiece":
        (folder / "target.spm").unlink()
    elif change == "damaged table":
        (folder / "vocab.json").write_text("{")
    elif change == "no weights":
        (folder / "model.safetensors").unlink()
    elif change == "a tensor more":
        tensors["model.encoder.layers.0.adapter.weight"] = torch.ones(2)
    elif change == "huge table of nothing":
        tensors["model.shared.weight"] = torch.zeros(10**9, 0)
    elif change == "a tensor less":
        del tensors["model.encoder.layers.0.fc2.weight"]
    if folder.exists():
        (folder / "config.json").write_text(json.dumps(config))
        if change != "no weights":
            save_file(tensors, folder / "model.safetensors")
    if change == "symbols elsewhere":
        (folder / "generation_config.json").unlink()
    refused(code, said, "import", "huggingface", folder, "-o", tmp_path / "imported")
    assert not list(tmp_path.glob("*imported*"))
