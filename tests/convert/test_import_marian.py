"""``deepwire import marian``: Marian's checkpoints and Bergamot's students, with equal probabilities.

The reference is numpy's version of Marian's equations, over what the files should hold; the slow test has
Bergamot's own translator.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from marian_models import (
    ENTRIES,
    OPTIONS,
    Reference,
    binary_shortlist,
    dequantised,
    is_quantised,
    option_bytes,
    random_arrays,
    sentencepieces,
    write_int8,
)

import deepwire
from deepwire.checkpoint.store import LoadedModel, load_model
from deepwire.cli.main import main
from deepwire.convert.marian import word_list, write_bin, yaml_text
from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.shortlist import Shortlist

Text = Mapping[str, Sequence[str]]
Command = Callable[..., tuple[int, str]]
ATTENTION: Mapping[str, object] = {
    "transformer-decoder-autoreg": "self-attention",
    "dec-cell": "gru",
    "transformer-ffn-activation": "swish",
}
MODELS: Mapping[str, Mapping[str, object]] = {
    "student": {},
    "OPUS-MT": ATTENTION,
    "two vocabularies": {"tied-embeddings-all": False, "tied-embeddings": True},
    "three matrices": {"tied-embeddings-all": False, "transformer-postprocess-emb": "nd"},
    "tied layers": {"transformer-tied-layers": [1, 1]},
}
SIZES: Mapping[str, object] = {"transformer-decoder-dim-ffn": 192}
"""Which Bergamot's translator does not know."""


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, multi30k: Text) -> Path:
    """A SentencePiece model of both sides, and one of each."""
    folder = tmp_path_factory.mktemp("words")
    german, english = multi30k["de"][:300], multi30k["en"][:300]
    sentencepieces(folder / "vocab.deen.spm", [*german, *english], "unigram")
    sentencepieces(folder / "srcvocab.spm", german, "bpe")
    sentencepieces(folder / "trgvocab.spm", english, "bpe")
    return folder


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Exit code and errors of ``deepwire ...``."""

    def run(*arguments: object) -> tuple[int, str]:
        code = main([str(argument) for argument in arguments])
        return code, capsys.readouterr().err

    return run


def vocabularies(words: Path, options: Mapping[str, object]) -> list[Path]:
    """One file, or one for each side."""
    names = ["vocab.deen.spm"] if options["tied-embeddings-all"] else ["srcvocab.spm", "trgvocab.spm"]
    return [words / name for name in names]


def made(folder: Path, words: Path, form: str, **changes: object) -> tuple[Path, Reference]:
    """A folder of Marian, and the equations of what it holds."""
    options = {**OPTIONS, **changes}
    folder.mkdir()
    for file in vocabularies(words, options):
        shutil.copy(file, folder)
    arrays = random_arrays(options)
    if form == "int8":
        # As calibration does: the largest inputs of some text.
        watched = Reference(arrays, options)
        watched.log_probs(range(4, 40), range(40, 70))
        write_int8(folder / "model.deen.intgemm.alphas.bin", arrays, option_bytes(options), watched.largest)
        arrays = {name: dequantised(value) if is_quantised(name) else value for name, value in arrays.items()}
    else:
        items = {**arrays, "special:model.yml": np.frombuffer(option_bytes(options), np.int8)}
        if form == "npz":
            np.savez(folder / "model.npz", **items)
        else:
            write_bin(items, folder / "model.bin")
    return folder, Reference(arrays, options)


def difference(found: LoadedModel, reference: Reference, text: Text) -> float:
    """Largest difference of a log-probability; our numbers are two more."""
    worst = 0.0
    for line, translation in zip(text["de"][:3], text["en"][:3], strict=True):
        source, target = found.vocabularies.source.encode(line), found.vocabularies.target.encode(translation)
        expected = reference.log_probs([word - 2 for word in source], [word - 2 for word in target])
        with torch.no_grad():
            ours = found.model.log_probs(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
        worst = max(worst, float(np.abs(ours[0, :, 2:].numpy() - expected).max()))
    return worst


@pytest.mark.parametrize("form", ["npz", "bin", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_probabilities_are_marian_s(
    name: str, form: str, words: Path, multi30k: Text, command: Command, tmp_path: Path
) -> None:
    changes = {**MODELS[name], **(SIZES if name == "three matrices" else {})}
    folder, reference = made(tmp_path / "there", words, form, **changes)
    code, errors = command("import", "marian", folder, "-o", tmp_path / "imported")
    assert code == 0, errors
    imported = load_model(tmp_path / "imported")
    assert difference(imported, reference, multi30k) < 1e-4
    assert imported.vocabularies.joint == ("tied-embeddings-all" not in changes)
    files = vocabularies(words, {**OPTIONS, **changes})
    for vocabulary, file in zip(imported.vocabularies.sides.values(), (files[0], files[-1]), strict=True):
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(file))
        for line in ("Ein Hund ☃ schläft.", *multi30k["de"][300:310]):
            ids = theirs.encode(line)
            assert vocabulary.encode(line) == [number + 2 for number in ids]
            assert vocabulary.decode(number + 2 for number in ids) == theirs.decode(ids)


def test_there_and_back_is_the_same_model(words: Path, command: Command, tmp_path: Path) -> None:
    folder, _ = made(tmp_path / "there", words, "npz")
    places = [tmp_path / "imported", tmp_path / "exported", tmp_path / "again"]
    assert command("import", "marian", folder / "model.npz", "-o", places[0])[0] == 0
    assert command("export", places[0], "-o", places[1], "--format", "marian", "--unchecked")[0] == 0
    assert command("import", "marian", places[1], "-o", places[2])[0] == 0
    first, second = load_model(places[0]), load_model(places[2])
    for (name, value), other in zip(first.model.named_parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(value, other, msg=name)
    assert first.vocabularies.digest == second.vocabularies.digest


def numbered(words: Path) -> tuple[list[str], str]:
    """The pieces of both sides as OPUS-MT numbers them, and the YAML file of them."""
    pieces = ["</s>", "<unk>"]
    for name in ("srcvocab.spm", "trgvocab.spm"):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(words / name))
        pieces += [processor.id_to_piece(number) for number in range(2, processor.vocab_size())]
    pieces = list(dict.fromkeys(pieces))
    return pieces, word_list(pieces)


@pytest.mark.parametrize("segmented", [False, True])
def test_a_vocabulary_of_pieces_with_their_numbers(
    segmented: bool, words: Path, multi30k: Text, command: Command, tmp_path: Path
) -> None:
    """OPUS-MT's form: one table for both sides, and a SentencePiece model of each side beside it, or none."""
    pieces, table = numbered(words)
    options = {**OPTIONS, **ATTENTION}
    arrays = random_arrays(options, [len(pieces)])
    folder = tmp_path / "opus"
    folder.mkdir()
    items = {**arrays, "special:model.yml": np.frombuffer(option_bytes(options), np.int8)}
    np.savez(folder / "opus.model1.npz", **items)
    (folder / "opus.vocab.yml").write_text(table)
    if not segmented:
        shutil.copy(words / "srcvocab.spm", folder / "source.spm")
        shutil.copy(words / "trgvocab.spm", folder / "target.spm")
    search = {"models": ["opus.model1.npz"], "vocabs": ["opus.vocab.yml"] * 2, "beam-size": 6, "normalize": 1}
    (folder / "decoder.yml").write_text(yaml_text({**search, "allow-unk": True}))
    code, errors = command("import", "marian", folder / "decoder.yml", "-o", tmp_path / "imported")
    assert code == 0, errors
    imported = load_model(tmp_path / "imported")
    assert imported.vocabularies.type == ("words" if segmented else "piece_table")
    for side, file in (("source", "srcvocab.spm"), ("target", "trgvocab.spm")):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(words / file))
        names = processor.encode(multi30k["de"][0], out_type=str)
        ids = imported.vocabularies.sides[side].encode(" ".join(names) if segmented else multi30k["de"][0])
        assert ids == [pieces.index(name) + 2 if name in pieces else 3 for name in names]
    assert difference(imported, Reference(arrays, options), multi30k) < 1e-4
    stored = imported.metadata["decoding"]
    assert isinstance(stored, dict)
    assert stored.items() >= {"beam": 6, "length_penalty": 1.0, "unknown_penalty": 0.0}.items()


LISTS = {10: [30, 31], 12: [31, 40, 41], 300: [7, 319]}


@pytest.mark.parametrize("form", ["binary", "text"])
def test_the_shortlist_is_kept(form: str, words: Path, command: Command, tmp_path: Path) -> None:
    folder, _ = made(tmp_path / "there", words, "bin")
    if form == "binary":
        lists = [LISTS.get(number, []) for number in range(ENTRIES)]
        binary_shortlist(folder / "lex.50.50.deen.s2t.bin", 5, lists)
    else:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(words / "vocab.deen.spm"))
        piece = processor.id_to_piece
        lines = [f"{piece(to)} {piece(of)} 0.5" for of, many in LISTS.items() for to in many]
        lines += [f"{piece(33)} {piece(12)} 0.1", f"NULL {piece(12)} 0.9"]
        (folder / "lex.s2t").write_text("".join(f"{line}\n" for line in lines))
        search = {"models": ["model.bin"], "vocabs": ["vocab.deen.spm"], "shortlist": ["lex.s2t", 5, 3]}
        (folder / "decoder.yml").write_text(yaml_text(search))
    assert command("import", "marian", folder, "-o", tmp_path / "imported")[0] == 0
    imported = load_model(tmp_path / "imported")
    found = Shortlist.load(tmp_path / "imported" / "shortlist", imported.vocabularies).table("")
    # One vocabulary: every piece may stay as it is.
    expected = [sorted({*LISTS.get(number, []), number}) for number in range(ENTRIES)]
    rows = [found.targets[first:last].tolist() for first, last in pairwise(found.offsets.tolist())]
    assert [[word - 2 for word in row] for row in rows[2:]] == expected
    assert found.always.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert len(deepwire.load(str(tmp_path / "imported"), shortlist=True).translate(["Ein Hund"])) == 1


def damage(folder: Path, change: str) -> None:
    """Make the folder wrong."""
    model = folder / "model.bin"
    content = model.read_bytes()
    match change:
        case "no folder":
            shutil.rmtree(folder)
        case "two models":
            shutil.copy(model, folder / "model2.bin")
        case "no vocabulary":
            (folder / "vocab.deen.spm").unlink()
        case "names of languages":
            for language in ("de", "en"):
                shutil.copy(folder / "vocab.deen.spm", folder / f"vocab.{language}.spm")
            (folder / "vocab.deen.spm").unlink()
        case "no model at all":
            model.write_bytes(b"\x01" * 999)
        case "cut short":
            model.write_bytes(content[:-300])
        case "optimizer":
            model.unlink()
            np.savez(folder / "model.npz", adam_mt=np.zeros(3, np.float32))
        case "objects":
            model.unlink()
            np.savez(folder / "model.npz", Wemb=np.array([{}], object))
        case "compressed":
            model.unlink()
            np.savez_compressed(folder / "model.npz", Wemb=np.zeros(9))
        case "for one processor":
            model.write_bytes(content.replace(b"\x04\x04" + bytes(6), b"\x01\x29" + bytes(6), 1))
        case "not a number":
            model.unlink()
            arrays = {
                **random_arrays(OPTIONS),
                "special:model.yml": np.frombuffer(option_bytes(OPTIONS), np.int8),
            }
            arrays["Wemb"][5] = np.nan
            np.savez(folder / "model.npz", **arrays)
        case "empty vocabulary":
            (folder / "vocab.deen.spm").write_bytes(b"")
        case "shortlist of others":
            binary_shortlist(folder / "lex.bin", 5, [[ENTRIES]] * ENTRIES)
        case "code":
            (folder / "decoder.yml").write_text("models: !!python/object/apply:os.system [exit]\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("no folder", "there: no such file or folder"),
        ("two models", "does not tell which files"),
        ("no vocabulary", "does not tell which files"),
        ("names of languages", "does not tell which files"),
        ("no model at all", "is no model of Marian, or is damaged: it does not begin with the version"),
        ("cut short", "is no model of Marian, or is damaged"),
        ("optimizer", "without 'special:model.yml'"),
        ("objects", "is no model of Marian"),
        ("compressed", "holds compressed data"),
        ("for one processor", "has the type 0x2901, which is the layout of one kind of processor"),
        ("not a number", "model.npz: Wemb is not finite"),
        ("empty vocabulary", "vocab.deen.spm: not a SentencePiece model"),
        ("shortlist of others", "is no shortlist of these vocabularies"),
        ("code", "decoder.yml:1: is no YAML of plain values"),
    ],
)
def test_a_wrong_folder_is_refused_in_one_line(
    change: str, said: str, words: Path, command: Command, tmp_path: Path
) -> None:
    folder, _ = made(tmp_path / "there", words, "bin")
    damage(folder, change)
    code, errors = command("import", "marian", folder, "-o", tmp_path / "imported")
    assert (code, said in errors) == (4, True), errors
    assert "unexpected" not in errors
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"type": "s2s"}, "made with type: s2s"),
        ({"type": "multi-transformer"}, "made with type: multi-transformer"),
        ({"dec-cell": "gru"}, "made with dec-cell: gru"),
        ({"transformer-preprocess": "n"}, "made with transformer-preprocess: n"),
        ({"lemma-dim-emb": 128}, "made with lemma-dim-emb: 128"),
        ({"transformer-decoder-autoreg": "average-attention"}, "average-attention"),
        ({"transformer-heads": 5}, "heads"),
        ({"transformer-heads": "many"}, "heads"),
        ({"dec-depth": 3}, "has 2 layers in the decoder, not 3"),
    ],
)
def test_other_architectures_are_refused_by_name(
    changes: dict[str, object], said: str, words: Path, command: Command, tmp_path: Path
) -> None:
    folder, _ = made(tmp_path / "there", words, "npz")
    with np.load(folder / "model.npz") as stored:
        arrays = dict(stored)
    arrays["special:model.yml"] = np.frombuffer(option_bytes({**OPTIONS, **changes}), np.int8)
    np.savez(folder / "model.npz", **arrays)
    code, errors = command("import", "marian", folder, "-o", tmp_path / "imported")
    assert (code in (2, 4), said in errors) == (True, True), errors
    assert "unexpected" not in errors


def test_a_vocabulary_that_does_not_fit_is_refused(
    words: Path, multi30k: Text, command: Command, tmp_path: Path
) -> None:
    folder, _ = made(tmp_path / "there", words, "npz")
    sentencepieces(folder / "vocab.deen.spm", multi30k["de"][:300], "bpe", ENTRIES - 8)
    code, errors = command("import", "marian", folder, "-o", tmp_path / "imported")
    assert (code, "Wemb is [320, 64], but" in errors) == (4, True), errors


PACKAGE = "@browsermt/bergamot-translator@0.4.9"
SEARCH = {
    "normalize": 1.0,
    "cpu-threads": 0,
    "alignment": "soft",
    "quiet": True,
    "quiet-translation": True,
    "max-length-break": 128,
    "mini-batch-words": 1024,
    "workspace": 128,
    "max-length-factor": 3,
}


@pytest.fixture(scope="module")
def bergamot(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Bergamot's translator, compiled to WebAssembly, as npm has it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    folder = tmp_path_factory.mktemp("bergamot")
    installed = subprocess.run(["npm", "install", "--prefix", folder, PACKAGE], capture_output=True)
    if installed.returncode:
        pytest.skip(f"npm cannot install {PACKAGE}")
    worker = folder / "node_modules" / "@browsermt" / "bergamot-translator" / "worker"

    def translate(
        model: Path,
        words: Sequence[Path],
        lines: Sequence[str],
        shortlist: Path | None = None,
        **search: object,
    ) -> list[str]:
        job = {
            "model": str(model),
            "vocabs": [str(file) for file in words],
            "shortlist": None if shortlist is None else str(shortlist),
            "config": yaml_text({**SEARCH, **search}),
        }
        (folder / "job.json").write_text(json.dumps(job))
        script = Path(__file__).with_name("bergamot.cjs")
        found = subprocess.run(
            ["node", script, worker, folder / "job.json"],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            check=True,
        )
        return found.stdout.splitlines()

    return translate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    [*((name, "bin") for name in MODELS), *((name, "int8") for name in ("student", "OPUS-MT"))],
)
def test_bergamot_translates_alike(
    name: str,
    form: str,
    bergamot: Callable[..., list[str]],
    words: Path,
    multi30k: Text,
    command: Command,
    tmp_path: Path,
) -> None:
    """All lines of float32, nearly all with a shortlist, and most of int8.

    Marian fills its shortlists to a multiple of eight. Its int8 rounds the inputs of each matrix, too, which
    changes words where, as with random values, many are as likely as others.
    """
    folder, _ = made(tmp_path / "there", words, form, **MODELS[name])
    lists = [[(7 * number + step) % ENTRIES for step in range(60)] for number in range(ENTRIES)]
    shortlist = binary_shortlist(folder / "lex.50.50.deen.s2t.bin", 48, lists)
    assert command("import", "marian", folder, "-o", tmp_path / "imported")[0] == 0
    lines = list(multi30k["de"][300:324])
    (model,) = folder.glob("model*.bin")
    files = vocabularies(words, {**OPTIONS, **MODELS[name]})
    precision = "int8shiftAlphaAll" if form == "int8" else "float32"
    for list_file in (None, shortlist):
        found = bergamot(
            model, files, lines, list_file, **{"beam-size": 1, "gemm-precision": precision, "skip-cost": True}
        )
        translator = deepwire.load(
            str(tmp_path / "imported"), precision="fp32", shortlist=list_file is not None
        )
        ours = [translator.translate([line])[0] for line in lines]
        equal = sum(one == other for one, other in zip(ours, found, strict=True))
        assert equal >= (len(lines) / 2 if form == "int8" else len(lines) - 2 * (list_file is not None))
