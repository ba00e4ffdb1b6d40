from __future__ import annotations

import json
import os
import pty
import signal
import time
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import torch
from forked import Piped, begin

from deepwire.checkpoint.store import save_model
from deepwire.cli.main import main
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

TEXT = "ein hund läuft\n\nzwei katzen schlafen auf dem sofa\n   \nein hund\n</s> <pad> haus\nhund\n"
SOURCE = ["ein hund läuft", "zwei katzen schlafen auf dem sofa"]
TARGET = ["a dog runs", "two cats sleep on the sofa"]


def save(folder, seed, words=TARGET, names=None, **decoding):
    pairs = [Pair(line, *texts, 0) for line, texts in enumerate(zip(SOURCE, words, strict=True), 1)]
    vocabularies = Vocabularies.learn_from_blocks(WordsConfig(joint=False), [pairs])
    config = ModelConfig.model_validate(
        {
            "d_model": 16,
            "heads": 2,
            "feed_forward": 32,
            "encoder": {"layers": 1},
            "decoder": {"layers": 1},
            "embeddings": {"tie": "output"},
        }
    )
    torch.manual_seed(seed)
    model = build_model(config, vocabularies.source.size, vocabularies.target.size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    limits = {"max_length_ratio": 1, "max_length_extra": 3}
    save_model(folder, model, vocabularies, {"decoding": {**limits, **decoding}, **(names or {})})
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "one", seed=1)


@pytest.fixture
def translate(model, tmp_path, capsys):
    """Lines of `deepwire translate MODEL ...` for a text."""

    def run(*options: str, text: str | bytes = TEXT, models: tuple[str, ...] = ()) -> list[str]:
        path = tmp_path / "input"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert main(["translate", *(models or (model,)), "--input", str(path), *options]) == 0
        return capsys.readouterr().out.split("\n")[:-1]

    return run


def test_one_line_for_each_line(translate):
    lines = translate()
    assert len(lines) == TEXT.count("\n")
    assert [line == "" for line in lines] == [not line.strip() for line in TEXT.split("\n")[:-1]]


@pytest.mark.parametrize("beam", ["1", "5"])
def test_batches_and_order_change_nothing(translate, beam):
    text = TEXT * 2
    expected = translate("--beam", beam, text=text)
    assert translate("--beam", beam, "batch_tokens=1", text=text) == expected
    assert translate("--beam", beam, "batch_tokens=60", text=text) == expected
    assert translate("--beam", beam, "--stream", text=text) == expected
    backwards = "".join(f"{line}\n" for line in reversed(text.split("\n")[:-1]))
    assert translate("--beam", beam, text=backwards) == expected[::-1]


def test_a_test_set_by_name_is_read_in_the_direction_of_the_model(translate, tmp_path, monkeypatch):
    model = save(tmp_path / "named", seed=1, names={"source": "de", "target": "en"})
    monkeypatch.setattr("deepwire.evaluation.test_sets.SACREBLEU_DIR", str(tmp_path))
    (tmp_path / "wmt14").mkdir()
    for ending, lines in (("src", SOURCE), ("ref", TARGET)):
        (tmp_path / "wmt14" / f"wmt14.de-en.{ending}").write_text("".join(f"{line}\n" for line in lines))
    expected = translate(text="".join(f"{line}\n" for line in SOURCE), models=(model,))
    assert main(["translate", model, "--test-set", "wmt14", "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text().splitlines() == expected
    assert main(["translate", model, "--test-set", "wmt14", "--input", "text"]) == 2


def test_n_best(translate):
    lines = translate("--n-best", "3")
    best = translate()
    blocks = [line.split(" ||| ") for line in lines]
    for line, text in enumerate(best):
        scores = [float(block[3]) for block in blocks if block[0] == str(line)]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == (3 if text else 1)
        assert next(block[1] for block in blocks if block[0] == str(line)) == text
    assert all(block[2].startswith("Score= ") for block in blocks)


def test_json_lines_keep_their_fields(translate):
    text = "".join(f'{{"id": {i}, "text": "{line}"}}\n' for i, line in enumerate(SOURCE))
    records = [json.loads(line) for line in translate("--json", "--json-input", text=text)]
    assert [record["id"] for record in records] == [0, 1]
    assert [record["translation"] for record in records] == translate(text="\n".join(SOURCE))
    assert [record["text"] for record in records] == SOURCE


def test_every_decoding_setting_can_be_set(translate):
    assert translate("beam=2") == translate("--beam", "2") != translate("--beam", "1")
    assert translate("n_best=2") == translate("--n-best", "2")
    longer = translate("decoding.min_length=6", "max_length_extra=9")
    assert all(len(line.split()) >= 6 for line in longer if line)
    assert longer != translate()
    drawn = translate("sampling.seed=3", "sampling.top_k=4")
    assert drawn == translate("--sample", "--seed", "3", "--set", "sampling.top_k=4")


def test_prefixes(translate, tmp_path):
    prefixes = tmp_path / "prefixes"
    prefixes.write_text("a dog\n\n\n\n\n\nsofa\n")
    lines = translate("--prefix", str(prefixes))
    assert lines[0].startswith("a dog")
    assert lines[6].startswith("sofa")
    assert lines[1] == ""


def test_an_ensemble_of_equal_models_is_the_model(translate, model, tmp_path):
    assert translate(models=(model, model)) == translate()
    other = save(tmp_path / "two", seed=2)
    assert translate(models=(model, other)) == translate(models=(other, model)) != translate()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--beam", "0"], 2, "--beam"),
        (["--n-best", "9"], 2, "n_best must be at most beam (4), but is 9"),
        (["--sample", "--beam", "5"], 2, "decoding settings: beam: sampling draws"),
        (["--top-k", "5"], 2, "settings have no dashes: sampling.top_k=VALUE"),
        (["--alignment-layer", "5"], 2, "settings have no dashes: alignment.layer=VALUE"),
        (["sampling.top_p=2"], 2, "command line: sampling.top_p: must be"),
        (["--scores", "--json"], 2, "--scores and --json are mutually exclusive"),
        (["--device", "tpu"], 2, "unknown device 'tpu'"),
        (["--input", "nothing.de"], 3, "nothing.de: no such file"),
        (["--prefix", "-", "--input", "-"], 2, "only one text can come from stdin"),
        (["--output", "./input"], 2, "is a text that is read, and would be replaced"),
        (["--shortlist-from", "."], 2, "no shortlist is there"),
        (["beam=many"], 2, "beam: must be"),
        (["--beam", "2", "sampling.seed=3"], 2, "decoding settings: beam: sampling draws"),
        (["--sample", "stop=first"], 2, "decoding settings: stop: sampling draws"),
    ],
)
def test_mistakes_are_one_line(model, tmp_path, monkeypatch, refused, options, code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input").write_text("hund\n")
    inputs = [] if "--input" in options else ["--input", "input"]
    refused(code, message, "translate", model, *inputs, *options)


def start(model, *options):
    return Piped("translate", model, "--quiet", "--threads", "1", *options)


def test_a_stream_is_answered_line_by_line(model, translate):
    expected = translate(text="ein hund\n\nzwei katzen\n")
    process = start(model, "--stream")
    for line, answer in zip(["ein hund", "", "zwei katzen"], expected, strict=True):
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().decode() == f"{answer}\n"
    process.stdin.close()
    assert process.wait(300) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_is_told_to_end_leaves_no_half_made_file(model, tmp_path, number):
    process = start(model, "--stream", "--output", str(tmp_path / "out"))
    while not list(tmp_path.iterdir()):
        assert process.poll() is None
        time.sleep(0.01)
    process.terminate(number)
    assert process.wait(60) == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_what_is_typed_is_answered_line_by_line(model, translate):
    """The child reads a terminal whose other side we hold; without its end it must answer."""
    expected = translate(text="ein hund\nzwei katzen\n")
    ours, terminal = pty.openpty()
    with TemporaryFile() as said:
        reading, writing = os.pipe()
        command = ("translate", model)
        child = begin(*command, cwd=Path.cwd(), stdin=terminal, stdout=writing, stderr=said.fileno())
        os.close(writing)
        os.close(terminal)
        with os.fdopen(reading) as answers:
            for line, answer in zip(["ein hund", "zwei katzen"], expected, strict=True):
                os.write(ours, f"{line}\n".encode())
                assert answers.readline() == f"{answer}\n"
            os.write(ours, b"\x04")
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os.close(ours)
        said.seek(0)
        assert said.read().startswith(b"type a sentence a line; Ctrl-D ends\n")
