"""One model for several directions, as a user walks it: German, English and English in other letters."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from forked import deepwire_command

import deepwire
from deepwire.checkpoint.store import load_model

RUN_FILE = """
data:
  directions: [{between: [en], and: [de, qaa]}]
  train: train
  valid: valid
  tag: both
  sampling_temperature: 5
  vocabulary: {type: bpe, size: 700, character_coverage: 1.0, balance_temperature: 5}
model:
  d_model: 32
  heads: 2
  feed_forward: 64
  dropout: 0.0
  encoder: {layers: 1, connection: depth_lstm}
  decoder: {layers: 1, connection: depth_lstm}
training:
  max_updates: 80
  batch_tokens: 600
  schedule: {type: constant, peak: 0.01, warmup: 5}
  validation: {every: 40, bleu: true, max_sentences: 6}
  early_stopping: {metric: loss, patience: 5}
  log_every: 10
  device: cpu
  precision: fp32
decoding: {beam: 2, max_length_ratio: 1, max_length_extra: 8}
"""
DIRECTIONS = ["en-de", "de-en", "en-qaa", "qaa-en"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, multi30k: Mapping[str, Sequence[str]]) -> Path:
    """A folder with text in three languages and a finished run of it in `runs/many`."""
    folder = tmp_path_factory.mktemp("many")
    text = {language: lines[:424] for language, lines in multi30k.items()}
    text["qaa"] = [codecs.encode(line, "rot13") for line in text["en"]]
    for language, lines in text.items():
        (folder / f"train.{language}").write_text("\n".join(lines[:400]) + "\n", encoding="utf-8")
        (folder / f"valid.{language}").write_text("\n".join(lines[400:]) + "\n", encoding="utf-8")
    (folder / "many.yaml").write_text(RUN_FILE)
    result = deepwire_command("train", "many.yaml", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "mix of 4 directions, sampling_temperature 5:" in result.stderr
    assert "deepwire translate runs/many --to de -i TEXT.en" in result.stdout
    return folder


def test_every_direction_is_validated(trained: Path) -> None:
    records = [json.loads(line) for line in (trained / "runs/many/metrics.jsonl").read_text().splitlines()]
    valid = [record for record in records if record["kind"] == "valid"]
    assert [record["update"] for record in valid] == [40, 80]
    for record in valid:
        found = record["directions"]
        assert list(found) == DIRECTIONS
        for score in ("loss", "nll", "bleu"):
            assert record[score] == pytest.approx(sum(found[name][score] for name in DIRECTIONS) / 4)
    losses = [record["nll"] for record in records if record["kind"] == "train"]
    assert losses[-1] < losses[0] - 1.0
    log = (trained / "runs/many/log.txt").read_text()
    assert all(f"valid {name} loss" in log for name in DIRECTIONS)
    for name in DIRECTIONS:
        assert len((trained / f"runs/many/valid/update-000080.{name}.txt").read_text().splitlines()) == 6


def test_a_stored_model_names_its_languages(trained: Path) -> None:
    (folder,) = (trained / "runs/many").glob("checkpoints/*80*")
    metadata = json.loads((folder / "config.json").read_text())["metadata"]
    assert metadata["languages"] == ["de", "en", "qaa"]
    assert metadata["directions"] == DIRECTIONS
    assert metadata["tag"] == "both"
    assert set(metadata["training_pairs"]) == set(DIRECTIONS)
    model = load_model(folder)
    assert model.model.source_vocabulary == model.vocabularies.source.size + 3


def test_inspect_counts_what_is_stored(trained: Path) -> None:
    counts = [
        json.loads(deepwire_command("inspect", subject, "--json", cwd=trained).stdout)["parameters"]
        for subject in ("runs/many", "many.yaml")
    ]
    assert counts[0] == counts[1]
    for subject in ("runs/many", "many.yaml"):
        said = deepwire_command("inspect", subject, cwd=trained).stdout
        assert "languages: de, en, qaa (tag: both)\n4 directions: en-de, de-en, en-qaa, qaa-en\n" in said


def test_one_direction_is_evaluated(trained: Path) -> None:
    files = ("--source", "valid.en", "--reference", "valid.de")
    found = deepwire_command(
        "evaluate", "-m", "runs/many", "--direction", "en-de", *files, "-o", "hyp.de", cwd=trained
    )
    assert found.returncode == 0, found.stderr
    source = (trained / "valid.en").read_text(encoding="utf-8").splitlines()
    expected = deepwire.load(trained / "runs" / "many").translate(source, to="de")
    assert (trained / "hyp.de").read_text(encoding="utf-8").splitlines() == expected


def test_command_and_python_translate_into_each_language(trained: Path) -> None:
    text = "A dog runs.\n\nTwo men play <2qaa> </s>.\n"
    model = deepwire.load(trained / "runs" / "many")
    for to in ("de", "qaa"):
        result = deepwire_command("translate", "runs/many", "--to", to, cwd=trained, stdin=text)
        assert result.returncode == 0, result.stderr
        lines = result.stdout.split("\n")
        assert len(lines) == 4
        assert lines[1] == ""
        assert model.translate(text.splitlines(), to=to) == lines[:3]
    assert model.translate(["A dog runs."], to="de") != model.translate(["A dog runs."], to="qaa")


def test_mixed_languages_in_one_input(trained: Path) -> None:
    model = deepwire.load(trained / "runs" / "many")
    alone = [model.translate([text], to=to)[0] for to, text in (("de", "A dog."), ("qaa", "Two men."))]
    columns = deepwire_command(
        *("translate", "runs/many", "--language-column", "1"),
        cwd=trained,
        stdin="de\tA dog.\nqaa\tTwo men.\n",
    )
    assert columns.stdout.splitlines() == alone, columns.stderr
    records = '{"text": "A dog.", "to": "de", "id": 1}\n{"text": "Two men.", "to": "qaa"}\n'
    answers = deepwire_command("translate", "runs/many", "--json-input", "--json", cwd=trained, stdin=records)
    found = [json.loads(line) for line in answers.stdout.splitlines()]
    assert [one["translation"] for one in found] == alone
    assert [one["to"] for one in found] == ["de", "qaa"]


def test_a_direction_without_training_works_with_a_note(trained: Path) -> None:
    result = deepwire_command(
        *("translate", "runs/many", "--from", "de", "--to", "qaa"), cwd=trained, stdin="Ein Hund.\n"
    )
    assert result.returncode == 0
    assert result.stdout.strip()
    assert "warning: the model was not trained from de to qaa (zero-shot)" in result.stderr


def test_scores_depend_on_the_language(trained: Path) -> None:
    files = ("--source", "valid.en", "--target", "valid.de")
    scores = {}
    for to in ("de", "qaa"):
        result = deepwire_command("score", "runs/many", *files, "--to", to, cwd=trained)
        assert result.returncode == 0, result.stderr
        scores[to] = [float(line) for line in result.stdout.split()]
    assert len(scores["de"]) == 24
    assert sum(scores["de"]) > sum(scores["qaa"]), "German is likelier under the tag of German"


def test_models_of_the_same_languages_translate_together(trained: Path) -> None:
    runs = trained / "runs" / "many"
    model = deepwire.load([f"{runs}@last", f"{runs}@avg2"])
    assert len(model.translate(["A dog.", "Two men."], to=["de", "qaa"])) == 2


def test_parameters_of_the_languages_own_work_with_tags_and_without(trained: Path) -> None:
    for tag, own in (
        ("none", "{norm: true, transform: identity}"),
        ("target", "{embedding: both, output_bias: true}"),
    ):
        settings = (f"data.tag={tag}", f"model.languages={own}", "run=runs/own", "training.max_updates=4")
        result = deepwire_command("train", "many.yaml", "--fresh", *settings, cwd=trained)
        assert result.returncode == 0, result.stderr
        model = deepwire.load(trained / "runs" / "own")
        mixed = model.translate(["A dog.", "Two men.", "A dog."], to=["de", "qaa", "qaa"])
        assert mixed[0] == model.translate(["A dog."], to="de")[0]
        assert mixed[1:] == model.translate(["Two men.", "A dog."], to="qaa")


def test_an_interrupted_run_goes_on_exactly(trained: Path) -> None:
    short = deepwire_command("train", "many.yaml", "run=runs/cut", "training.max_updates=40", cwd=trained)
    assert short.returncode == 0, short.stderr
    rest = deepwire_command("train", "many.yaml", "run=runs/cut", cwd=trained)
    assert rest.returncode == 0, rest.stderr
    weights = [next((trained / "runs" / name).glob("checkpoints/*80*")) for name in ("many", "cut")]
    first, second = ((folder / "model.safetensors").read_bytes() for folder in weights)
    assert first == second


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["translate", "runs/many"], 2, "say which language to translate into"),
        (
            ["translate-file", "runs/many", "-i", "page.html"],
            2,
            "say which language to translate into, with --to\n",
        ),
        (["translate", "runs/many", "--to", "fr"], 2, "it translates into de, en, qaa"),
        (["translate", "runs/many", "--language-column", "1"], 3, "<stdin>:1: no column 1"),
        (["evaluate", "--model", "runs/many", "-s", "valid.en", "-r", "valid.de"], 2, "--direction en-de, "),
        (["train", "many.yaml", "data.directions=[en-german]"], 2, "'en-german' is not a direction"),
        (["prepare", "many.yaml", "data.directions=[en-de,en-fr]"], 3, "train.fr: no such file"),
        (["train", "many.yaml", "data.tag=none"], 2, "nothing tells the model which of de, en, qaa"),
    ],
)
def test_wrong_input_is_one_clear_line(trained: Path, arguments: list[str], code: int, said: str) -> None:
    (trained / "page.html").write_text("<p>Ein Hund.</p>")
    result = deepwire_command(*arguments, cwd=trained, stdin="Ein Hund.\n")
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert "error: " in result.stderr
    assert said in result.stderr


@pytest.mark.slow
def test_a_shortlist_has_subwords_of_each_language(trained: Path) -> None:
    sources = [(trained / f"valid.{name}").read_text(encoding="utf-8") for name in ("de", "qaa")]
    into = ("--to", "en", "--json", "--shortlist")
    early = deepwire_command("translate", "runs/many", *into, cwd=trained, stdin=sources[0])
    assert (early.returncode, "deepwire shortlist" in early.stderr) == (2, True)
    made = deepwire_command("shortlist", "runs/many", "--best", "5", "--first", "20", cwd=trained)
    assert (made.returncode, made.stdout) == (0, "runs/many/shortlist\n"), made.stderr
    for source in sources:
        found = deepwire_command("translate", "runs/many@last", *into, cwd=trained, stdin=source)
        assert found.returncode == 0, found.stderr
        assert found.stdout.count("\n") == source.count("\n")
        sums = [json.loads(line)["log_probability"] for line in found.stdout.splitlines()]
        whole = deepwire_command("translate", "runs/many@last", *into[:3], cwd=trained, stdin=source)
        assert sums != [json.loads(line)["log_probability"] for line in whole.stdout.splitlines()]
    text = ("--source", "train.de", "--target", "train.en", "--output", "other")
    assert deepwire_command("shortlist", "runs/many", *text, cwd=trained).returncode == 2, "which language?"
    assert deepwire_command("shortlist", "runs/many", *text, "--to", "en", cwd=trained).returncode == 0
    only = ("--shortlist-from", "other", "--to")
    english = deepwire_command("translate", "runs/many", *only, "en", cwd=trained, stdin=sources[0])
    german = deepwire_command("translate", "runs/many", *only, "de", cwd=trained, stdin=sources[0])
    assert (english.returncode, german.returncode) == (0, 2)
    assert "no subwords of de" in german.stderr


def test_only_subwords_that_a_language_has(trained: Path) -> None:
    """`--seen`: learned from the text of the run, for lines of several languages in one batch."""
    lines = (trained / "valid.en").read_text(encoding="utf-8").splitlines()[:12]
    mixed = "".join(f"{('de', 'qaa')[row % 2]}\t{line}\n" for row, line in enumerate(lines))
    asked = ("translate", "runs/many", "--language-column", "1", "--json", "--seen")
    early = deepwire_command(*asked, cwd=trained, stdin=mixed)
    assert (early.returncode, "no shortlist is there" in early.stderr) == (2, True)
    made = deepwire_command("shortlist", "runs/many", "--seen", cwd=trained)
    assert (made.returncode, made.stdout) == (0, "runs/many/seen\n"), made.stderr
    found = deepwire_command(*asked, cwd=trained, stdin=mixed)
    assert found.returncode == 0, found.stderr
    words = load_model(trained / "runs/many/checkpoints/update-000080").vocabularies.target
    for row, answer in enumerate(found.stdout.splitlines()):
        text = (trained / f"train.{('de', 'qaa')[row % 2]}").read_text(encoding="utf-8").splitlines()
        seen = {piece for ids in words.encode_lines(text) for piece in words.pieces(ids)}
        assert set(json.loads(answer)["tokens"]) <= seen
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(trained)
        tool = deepwire.load("runs/many", shortlist="seen")
        expected = [json.loads(answer)["translation"] for answer in found.stdout.splitlines()]
        assert tool.translate(lines, to=["de", "qaa"] * 6) == expected
    score = ("evaluate", "--model", "runs/many", "--source", "valid.en", "--reference", "valid.de")
    assert deepwire_command(*score, "--direction", "en-de", "--seen", cwd=trained).returncode == 0
    table = ("evaluate-directions", "runs/many", "--test", "valid", "--directions", "en-de", "--seen")
    assert deepwire_command(*table, cwd=trained).returncode == 0


def test_all_directions_make_a_table_and_stored_translations_the_same(trained: Path) -> None:
    table = ("evaluate-directions", "runs/many", "--test", "valid", "--zero-shot", "--output", "hyps")
    made = deepwire_command(*table, "--json", cwd=trained)
    assert made.returncode == 0, made.stderr
    report = json.loads(made.stdout)
    zero_shot = {row["direction"] for row in report["directions"] if row["zero_shot"]}
    assert zero_shot == {"de-qaa", "qaa-de"}
    assert {"all trained", "out of en", "into en", "zero-shot"} == {one["name"] for one in report["averages"]}
    rows = {row["direction"]: row for row in report["directions"]}
    assert 0 <= rows["de-en"]["right_language"] <= 1
    stored = ("evaluate-directions", "hyps", "runs/many", "--test", "valid", "--samples", "20", "--json")
    compared = json.loads(deepwire_command(*stored, cwd=trained).stdout)
    for row in compared["directions"]:
        assert row["scores"] == row["baseline"] == rows[row["direction"]]["scores"]
        assert row["comparisons"][0]["difference"] == 0
