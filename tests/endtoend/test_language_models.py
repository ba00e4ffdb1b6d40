"""A language model from text to perplexities and texts: trained, interrupted, continued, asked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepwire
from deepwire.api.model import Model
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import load_model, save_model
from deepwire.cli.main import main
from deepwire.data.prepare.packing import documents_of
from deepwire.errors import ModelError, UsageError

RUN_FILE = """
task: language_model
data:
  target: en
  train: train
  valid: valid
  text: {unit: documents, block: 24}
  vocabulary: {type: words, min_count: 2}
model:
  d_model: 32
  heads: 2
  feed_forward: 64
  dropout: 0.1
  decoder: {layers: 2, connection: pre_norm, mixer: [self_attention, gla]}
training:
  max_updates: 60
  batch_tokens: 600
  log_every: 20
  schedule: {peak: 0.01, warmup: 5}
  validation: {every: 30}
  checkpoint: {every: 30, keep_last: 3}
  device: cpu
  precision: fp32
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, multi30k: Mapping[str, Sequence[str]]) -> Path:
    """Captions as documents of two lines, and a run on them."""
    folder = tmp_path_factory.mktemp("language-model")
    lines = multi30k["en"]
    for name, start, stop in (("train", 0, 1500), ("valid", 1500, 1600)):
        documents = (f"{lines[place]}\n{lines[place + 1]}\n" for place in range(start, stop, 2))
        (folder / f"{name}.en").write_text("\n".join(documents))
    (folder / "run.yaml").write_text(RUN_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "run.yaml", "-q"]) == 0
    return folder


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return deepwire.load(folder / "runs" / "run", "cpu", "fp32")


def test_it_learns_more_than_how_frequent_words_are(in_folder: Path) -> None:
    run = deepwire.Run("runs/run")
    assert run.best is not None
    scores = run.best.scores
    prepared = deepwire.prepare("run.yaml")
    assert prepared.valid is not None
    counts = np.ones(prepared.vocabularies.target.size)
    for line in range(len(prepared.train)):
        np.add.at(counts, prepared.train.target_side.sentence(line)[1:], 1)
    predicted = [prepared.valid.target_side.sentence(line)[1:] for line in range(len(prepared.valid))]
    tokens = np.concatenate(predicted)
    unigram = math.exp(-np.log(counts / counts.sum())[tokens].mean())
    assert scores["perplexity"] < 0.9 * unigram
    text = Path("valid.en").read_text()
    # All perplexities are of the same probability.
    total = len(tokens) * math.log(scores["perplexity"])
    assert total == pytest.approx(len(text.split()) * math.log(scores["word_perplexity"]))
    # The last document has no empty line behind it in the file, and one in the blocks of others.
    assert total == pytest.approx(len(text.encode()) * math.log(scores["byte_perplexity"]), rel=1e-3)
    assert scores["bits_per_byte"] == pytest.approx(math.log2(scores["byte_perplexity"]))


def test_an_interrupted_run_ends_with_the_same_parameters(in_folder: Path) -> None:
    assert main(["train", "run.yaml", "run=stopped", "-q", "training.max_updates=17"]) == 0
    assert main(["train", "run.yaml", "run=stopped", "-q"]) == 0
    weights = "checkpoints/update-000060/model.safetensors"
    assert (in_folder / "runs/run" / weights).read_bytes() == (in_folder / "stopped" / weights).read_bytes()


def test_perplexity_of_a_text(in_folder: Path, model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path("valid.en").read_text().splitlines()
    joined = model.perplexity(lines, joined=True, stride=24)
    scores = deepwire.Run("runs/run").best.scores
    # Windows that do not overlap are the blocks of the validation; only the last one has more to see.
    assert joined.perplexity == pytest.approx(scores["perplexity"], rel=3e-3)
    assert model.perplexity(lines, joined=True, stride=4).perplexity < joined.perplexity
    each = list(model.document_scores(lines))
    assert len(each) == 50 == len(list(documents_of(lines, "documents")))
    alone = model.perplexity(lines)
    assert sum(score.log_probability for score in each) == pytest.approx(alone.log_probability)
    assert alone.bytes == len(Path("valid.en").read_bytes()) + 1

    assert main(["perplexity", "runs/run", "-i", "valid.en", "--precision", "fp32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["perplexity"] == pytest.approx(alone.perplexity, rel=1e-5)


def test_prompts_of_any_length_are_read_at_once(in_folder: Path, model: Model) -> None:
    """As if the model had chosen each subword of them itself; no n-gram of theirs comes again."""
    (whole,) = model.generated(["A man in a blue shirt"], max_length=30)
    words = whole.text.split(" ")
    starts = [" ".join(words[:number]) for number in range(6, 20, 3)]
    for number, start in zip(range(6, 20, 3), starts, strict=True):
        (found,) = model.generated([start], max_length=36 - number)
        assert found.text == whole.text
        assert found.log_probability == pytest.approx(whole.log_probability, abs=1e-3)
    assert all(whole.text.startswith(text) for text in model.generate(starts, max_length=4))
    prompt = "a man and a man and"
    free, once = (
        deepwire.load("runs/run", precision="fp32", settings=settings).generate([prompt], max_length=20)
        for settings in ({}, {"no_repeat_ngram": 2})
    )
    new = once[0].removeprefix(prompt).split()
    pairs = [*zip(["and", *new], new, strict=False)]
    assert len({*pairs, ("a", "man"), ("man", "and"), ("and", "a")}) == len(pairs) + 3
    assert free != once


def test_a_window_scores_what_a_pass_over_its_tokens_says(model: Model) -> None:
    lines = ["A man in a blue shirt is standing on a ladder .", "A dog runs ."] * 4
    (whole,) = model.document_scores(lines, context=1000)
    for stride in (5, 24):
        (score,) = model.document_scores(lines, context=24, stride=stride)
        assert score.tokens == whole.tokens
        assert score.log_probability != whole.log_probability
    (one_by_one,) = model.document_scores(lines, context=whole.tokens, stride=1)
    assert one_by_one.log_probability == pytest.approx(whole.log_probability)


def test_texts_begin_with_their_prompts(model: Model) -> None:
    prompts = ["A man", "", "Two dogs are playing\nA"]
    texts = model.generate(prompts, max_length=12)
    assert [text.startswith(prompt) for text, prompt in zip(texts, prompts, strict=True)] == [True] * 3
    assert texts == [model.generate([prompt], max_length=12)[0] for prompt in prompts]
    with pytest.raises(UsageError, match=r"^max_length: must be at most 100000, not 100001$"):
        model.generate(prompts, max_length=100_001)
    best = model.generate(prompts, max_length=12, beam=3)
    drawn = model.generate(prompts, sampling={"seed": 3, "top_k": 20})
    assert drawn == model.generate(prompts, sampling={"seed": 3, "top_k": 20})
    assert drawn != model.generate(prompts, sampling={"seed": 4, "top_k": 20})
    # Other settings than those of the call are not in it, whatever is stored; a command changes what is.
    careful = model.with_search(sampling={"temperature": 0.1})
    assert careful.generate(prompts, sampling={"seed": 3, "top_k": 20}) == drawn
    assert careful.generate(prompts) != careful.generate(prompts, sampling={})
    assert all(text.startswith(prompt) for text, prompt in zip([*best, *drawn], prompts * 2, strict=True))
    # Documents of two lines were learned, so a text has a line break, which is no subword of the text.
    assert any("\n" in text for text in drawn)
    for found in model.generated(["A man"], max_length=30):
        (score,) = model.document_scores(found.text.split("\n"), context=1000)
        expected = score.log_probability if found.ended else pytest.approx(found.log_probability)
        assert found.log_probability == pytest.approx(expected, abs=1e-3)


def test_a_command_draws_as_its_options_and_the_stored_settings_say(
    in_folder: Path, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = load_model(find_model("runs/run"))
    metadata = {**stored.metadata, "decoding": {"sampling": {"temperature": 0.1}}}
    save_model(Path("careful"), stored.model, stored.vocabularies, metadata)
    prompts = ["A man", "Two dogs"]
    (in_folder / "prompts.en").write_text("".join(f"{prompt}\n" for prompt in prompts))
    command = ["generate", "-i", "prompts.en", "--max-length", "12", "--precision", "fp32", "-q"]
    for options, settings in (
        (["runs/run", "--sample", "--seed", "3"], {"seed": 3}),
        (["careful", "--sample", "--seed", "3"], {"seed": 3, "temperature": 0.1}),
        (["careful", "--seed", "3", "--top-k", "5"], {"seed": 3, "temperature": 0.1, "top_k": 5}),
    ):
        assert main([*command, *options]) == 0
        texts = model.generate(prompts, max_length=12, sampling=settings)
        assert capsys.readouterr().out == "".join(f"{text}\n\n" for text in texts)
    assert main([*command, "runs/run", "--seed", "3"]) == 2
    assert "--seed is for random translations" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["translate", "runs/run"], "is a language model"),
        (
            ["perplexity", "runs/run", "-i", "valid.en", "--stride", "25"],
            "stride must be from 1 to the context of",
        ),
        (["perplexity", "runs/run", "-i", "empty.en"], "no text to score"),
    ],
)
def test_what_it_cannot_do(
    in_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    (in_folder / "empty.en").write_text("\n\n")
    assert main(arguments) != 0
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_wrong_calls_from_python(model: Model) -> None:
    with pytest.raises(ModelError, match="is a language model"):
        model.translate(["A man"])
    calls: list[Any] = [model.perplexity, model.document_scores, model.generate, model.generated]
    for call in calls:
        with pytest.raises(UsageError, match="not texts but str"):
            call("A man")
    with pytest.raises(UsageError, match="no text to score"):
        model.perplexity(["", ""])


def test_no_more_is_read_than_positions_were_learned(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = ["model.positions=learned", "model.max_length=30", "training.max_updates=1", "run=runs/learned"]
    assert main(["train", "run.yaml", *learned, "training.validation.every=1", "-q"]) == 0
    model = deepwire.load("runs/learned", "cpu", "fp32", settings={"max_length_extra": 28})
    (in_folder / "long.en").write_text("a man in a red shirt is on a red horse " * 6 + "\n")

    assert model.perplexity([*["a man"] * 60], context=30).tokens > 60
    assert model.generate(["a man"], max_length=28)
    for command, said in (
        (["perplexity", "runs/learned", "-i", "long.en", "--context", "31"], "has learned 30 positions"),
        (["generate", "runs/learned", "--max-length", "3", "-i", "long.en"], "3 more do not fit into the 30"),
    ):
        assert main(command) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(UsageError, match="prompt 1: has 3 subwords, and 28 more"):
        model.generate(["a man is"])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("task=translation", "data.text is text of one side"),
        ("model.architecture=encoder_decoder", "set model.architecture to decoder_only"),
        ("data.train={source_file: a, target_file: b}", "a language model reads files of text"),
        ("data.filters.max_ratio=2", "has no effect"),
        ("data.train=nothing", "nothing.en: no such file"),
    ],
)
def test_settings_that_do_not_go_with_it(
    in_folder: Path,
    capsys: pytest.CaptureFixture[str],
    setting: str,
    said: str,
) -> None:
    assert main(["data", "check", "run.yaml", *setting.split(";")]) != 0
    assert said in capsys.readouterr().err
