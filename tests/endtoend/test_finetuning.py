"""From a teacher to a student, and from a model to a better one, on real text by the commands of users."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from deepwire.checkpoint.model_path import find_model
from deepwire.cli.main import main

RUN_FILE = """
data: {source: de, target: en, train: train, valid: valid, vocabulary: {type: bpe, size: 500, joint: true}}
model: {d_model: 32, heads: 2, feed_forward: 64, dropout: 0.1, encoder: {layers: 2}, decoder: {layers: 1}}
training:
  max_updates: 40
  batch_tokens: 600
  schedule: {type: constant, peak: 0.01, warmup: 5}
  validation: {every: 20, max_sentences: 16}
  log_every: 10
  device: cpu
  precision: fp32
decoding: {beam: 2, max_length_extra: 5}
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, multi30k: Mapping[str, Sequence[str]]) -> Path:
    """A folder with a small corpus and finished runs of both directions, `runs/de-en` and `runs/en-de`."""
    folder = tmp_path_factory.mktemp("line")
    for language, lines in multi30k.items():
        parts = {"train": lines[:300], "valid": lines[300:324], "mono": lines[400:440], "new": lines[500:750]}
        parts |= {"few": lines[:199], "unequal": lines[: 300 if language == "de" else 299]}
        for name, part in parts.items():
            (folder / f"{name}.{language}").write_text("\n".join(part) + "\n", encoding="utf-8")
    (folder / "de-en.yaml").write_text(RUN_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "de-en.yaml", "-q"]) == 0
        reverse = ["data.source=en", "data.target=de", "run=runs/en-de"]
        assert main(["train", "de-en.yaml", "-q", *reverse]) == 0
    return folder


@pytest.fixture(autouse=True)
def _there(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)


def losses(run: Path, kind: str, name: str) -> list[float]:
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [entry[name] for entry in entries if entry["kind"] == kind]


@pytest.mark.slow
def test_a_student_learns_from_real_and_distilled_and_back_translated_text(corpus: Path) -> None:
    assert main(["distill", "runs/de-en", "--source", "train.de", "--output", "distilled.gz", "-q"]) == 0
    back = "back-translate runs/en-de --input mono.en --output back --sample --tag <BT> -q"
    assert main(back.split()) == 0
    lines = (corpus / "back.de").read_bytes().splitlines()
    assert len(lines) == 40
    assert (corpus / "back.en").read_bytes() == (corpus / "mono.en").read_bytes()
    student = RUN_FILE.replace("train: train", "train: [train, distilled, back]")
    (corpus / "student.yaml").write_text(student.replace("d_model: 32", "d_model: 16"))
    assert main(["train", "student.yaml", "training.max_updates=10", "-q"]) == 0
    log = (corpus / "runs/student/log.txt").read_text()
    pairs = int(log.split(" training pairs")[0].split()[-1])
    assert pairs > 600  # of 640; some random lines are filtered out


def test_fine_tuning_with_averages_and_frozen_encoder_begins_where_the_model_was(corpus: Path) -> None:
    settings = """run=runs/tuned training.start_from=runs/de-en@last training.freeze=encoder.*
        training.ema.decay=0.9 training.r_drop=2 training.max_updates=20 training.schedule.peak=0.001
        training.validation.metrics=[chrf,ter] training.early_stopping.metric=chrf"""
    assert main(["train", "de-en.yaml", "-q", *settings.split()]) == 0
    before, after = corpus / "runs/de-en", corpus / "runs/tuned"
    assert losses(after, "train", "nll")[0] < losses(before, "train", "nll")[0] - 1
    assert losses(after, "valid", "nll")[-1] < losses(before, "valid", "nll")[-1] + 0.2
    assert all(0 <= score <= 100 for score in losses(after, "valid", "chrf"))
    assert losses(after, "valid", "ter")
    assert losses(after, "train", "r_drop")
    log = (after / "log.txt").read_text()
    assert "started from runs/de-en@last" in log
    assert "frozen by encoder.*: " in log
    assert " ter " in log
    assert main(["translate", "runs/tuned", "-i", "valid.de", "-o", "out.txt", "-q"]) == 0
    assert len((corpus / "out.txt").read_bytes().splitlines()) == 24


def test_a_larger_vocabulary_keeps_what_was_learned(corpus: Path) -> None:
    settings = (
        "run=runs/larger data.vocabulary.size=560 training.start_from=runs/de-en training.max_updates=2"
    )
    assert main(["train", "de-en.yaml", "-q", *settings.split()]) == 0
    report = json.loads((corpus / "runs/larger/start_from.json").read_text())
    rows = report["vocabulary"]["joint"]
    assert rows["taken"] + rows["new"] == 556
    assert rows["taken"] > 450
    # Far better than an untrained model, whose loss is the logarithm of the vocabulary.
    assert losses(corpus / "runs/larger", "train", "nll")[0] < 5.5


Finetune = Callable[[str], tuple[int, str, str]]
SHORT = "training.stop_after=11u training.validation.every=5 training.precision=fp32 training.device=cpu"


@pytest.fixture
def finetune(capsys: pytest.CaptureFixture[str]) -> Finetune:
    """Runs `deepwire finetune ...`: exit code, stdout, stderr."""

    def run(typed: str) -> tuple[int, str, str]:
        return main(["finetune", *typed.split()]), *capsys.readouterr()

    return run


def test_one_command_trains_on_new_text_and_compares_both_domains(finetune: Finetune, corpus: Path) -> None:
    code, out, err = finetune(f"runs/de-en --train new --old-valid valid training.freeze=encoder.* {SHORT}")
    assert code == 0, err
    assert "a part of new is held out" in err
    assert err.count(" old domain loss ") == 3
    assert "frozen by encoder.*" in err
    new, old = out.split("old domain, 24 pairs: loss ")
    before, after = map(float, new.split("new domain, 25 pairs: loss ")[1].split(" nats")[0].split(" -> "))
    assert after < before
    assert {"runs/de-en", "runs/de-en-finetuned"} <= {line.split(" ")[0] for line in old.splitlines()}
    assert json.loads((corpus / "runs/de-en-finetuned/start_from.json").read_text())["vocabulary"] == {}


def test_the_same_command_and_the_run_file_in_the_run_go_on(finetune: Finetune) -> None:
    typed = f"runs/de-en --train new --valid valid run=runs/again {SHORT}"
    assert finetune(typed)[0] == 0
    code, out, _ = finetune(typed)
    assert (code, "nothing to do: run finished at update 11" in out) == (0, True)
    assert "new domain, 24 pairs: loss " in out
    assert main(["train", "runs/again/config.yaml", "training.stop_after=12u"]) == 0
    assert "continued from update-000011" in (Path("runs/again/log.txt")).read_text()


def test_one_direction_of_several_goes_on(finetune: Finetune) -> None:
    Path("many.yaml").write_text(RUN_FILE.replace("source: de, target: en", "directions: [de-en, en-de]"))
    assert main(["train", "many.yaml", "training.max_updates=1", "-q"]) == 0
    code, out, err = finetune(f"runs/many --train new --direction en-de {SHORT}")
    assert (code, "runs/many-finetuned" in out) == (0, True), err
    assert "has several directions" in finetune("runs/many --train new")[2]
    code, _, err = finetune(f"runs/many-finetuned --train new {SHORT}")  # which has only that direction
    assert code == 0, err


def test_nothing_is_held_out_where_a_setting_names_validation_text(finetune: Finetune) -> None:
    code, out, err = finetune(f"runs/de-en --train new data.valid=valid run=runs/named {SHORT}")
    assert (code, "new domain, 24 pairs" in out, "held out" in err) == (0, True, False), err


def test_a_model_is_not_trained_in_its_own_folder(finetune: Finetune, corpus: Path) -> None:
    shutil.copytree(find_model("runs/de-en"), corpus / "model")
    before = sorted(path.name for path in (corpus / "model").iterdir())
    code, _, err = finetune(f"model --train new --valid valid run=model {SHORT}")
    assert (code, "model is a model" in err) == (2, True), err
    assert sorted(path.name for path in (corpus / "model").iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("runs/nothing --train new", 4, "runs/nothing: no such model"),
        ("theirs --train new", 4, "deepwire import huggingface theirs"),
        ("words --train new", 4, "words: is a language model"),
        ("runs/de-en --train nothing", 3, "nothing.de: no such file"),
        ("runs/de-en --train new --valid valid --old-valid nothing", 3, "nothing.de: no such file"),
        ("runs/de-en --train unequal", 3, "unequal.en 299"),
        ("runs/de-en --train few", 3, "few: 199 pairs, too few to hold some out"),
        ("runs/de-en --train new --train few", 2, "add --valid"),
        ("runs/de-en --train new --direction fr-en", 2, "runs/de-en: translates de-en, not fr-en"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_run(
    arguments: str, code: int, said: str, finetune: Finetune
) -> None:
    foreign = {"theirs": '{"model_type": "marian"}', "words": '{"format": 1, "metadata": {"text": {}}}'}
    for name, config in foreign.items():
        Path(name).mkdir(exist_ok=True)
        Path(name, "config.json").write_text(config)
        Path(name, "model.safetensors").touch()
    found, out, err = finetune(f"{arguments} run=runs/wrong")
    assert (found, said in err.partition("error: ")[2], out) == (code, True, ""), err
    assert not Path("runs/wrong").exists()
