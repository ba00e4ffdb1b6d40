from __future__ import annotations

import json
import re
from functools import reduce
from pathlib import Path

import pytest
import yaml

from deepwire.data.text.corpus import hinting_at_recipes
from deepwire.data.text.files import MissingTextError, read_lines
from deepwire.errors import UsageError
from deepwire.runfile import CHANGEABLE, RunFile, completed, load_run_file


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the test, with run files one folder below."""
    (tmp_path / "experiments").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_paths_start_from_the_file_they_are_written_in(here: Path) -> None:
    write(here / "shared/base.yaml", "data: {source: de, target: en, train: text/train, valid: text/val}")
    path = write(
        here / "experiments/run.yaml",
        "extends: ../shared/base.yaml\nrun: runs/x\ndata: {valid: {tsv: ../val.tsv}, test: {jsonl: '-'}}",
    )
    data = load_run_file(path).config.data
    assert data.train[0].prefix == here / "shared/text/train"
    assert data.valid is not None
    assert data.valid[0].tsv == here / "val.tsv"
    assert data.test is not None
    assert data.test[0].jsonl == Path("-")
    assert data.prepared == here / "experiments/prepared"


def test_paths_of_the_command_line_and_of_recipes_start_from_the_working_directory(here: Path) -> None:
    path = write(here / "experiments/run.yaml", "data: {source: de, target: en, train: train}")
    changed = load_run_file(path, ["data.train=[a, {prefix: b}]", "run=runs/y"])
    assert [corpus.prefix for corpus in changed.config.data.train] == [here / "a", here / "b"]
    assert changed.config.run == Path("runs/y")
    recipe = load_run_file("demo").config.data
    assert recipe.train[0].prefix == here / "examples/multi30k/train"
    assert recipe.prepared == here / "prepared"


def test_the_name_and_directory_of_a_run(here: Path) -> None:
    path = write(here / "experiments/my-run.yaml", "data: {source: de, target: en, train: train}")
    loaded = load_run_file("experiments/my-run.yaml")
    assert (loaded.path, loaded.name, loaded.run_directory) == (path, "my-run", Path("runs/my-run"))
    assert load_run_file(path, ["run=elsewhere"]).run_directory == Path("elsewhere")
    assert load_run_file("multi30k/depth-lstm-tiny").run_directory == Path("runs/depth-lstm-tiny")


def test_the_resolved_settings_hold_every_default_and_can_be_read_back(here: Path) -> None:
    loaded = load_run_file("multi30k/transformer-tiny", ["seed=5"])
    text = json.dumps({key: value for key, value in loaded.resolved.items() if key != "recipe"})
    again = load_run_file(write(here / "again.yaml", text))
    assert again.config.model == loaded.config.model
    assert again.config.training == loaded.config.training
    assert again.config.data == loaded.config.data
    assert again.config.seed == 5
    assert loaded.origins["seed"] == "command line"
    assert loaded.origins["model.d_model"].startswith("recipe multi30k/base:")


def test_a_mistake_names_the_file_as_the_user_knows_it(here: Path) -> None:
    path = write(here / "experiments/run.yaml", "data: {source: de, target: en, train: t}\ntraning: {}\n")
    with pytest.raises(
        UsageError, match=r"^experiments/run.yaml:2: traning: unknown key \(did you mean training\?\)$"
    ):
        load_run_file(path)
    with pytest.raises(
        UsageError, match=r"^command line: decoding.beem: unknown key \(did you mean decoding.beam\?\)$"
    ):
        load_run_file("demo", ["decoding.beem=3"])
    with pytest.raises(
        UsageError, match=r"^run.yaml:1: extends: demoo: no such recipe \(did you mean demo\?\)$"
    ):
        load_run_file(write(here / "run.yaml", "extends: demoo"))
    with pytest.raises(UsageError, match=r"^empty.yaml:1: data: is missing and has no default$"):
        load_run_file(write(here / "empty.yaml", "seed: 1"))


def test_settings_that_are_new_since_a_run_was_recorded_have_their_defaults() -> None:
    """A run of an earlier version continues; what this version cannot read stays as it was."""
    resolved = load_run_file("demo").resolved
    earlier = json.loads(json.dumps(resolved))
    earlier["recipe"] = {"key of an earlier version": 1}
    del earlier["model"]["embeddings"]["start"], earlier["model"]["decoder"]["feed_forward"]
    for name in ("directions", "tag", "sampling_temperature"):
        del earlier["data"][name]
    for corpora in (earlier["data"]["train"], earlier["data"]["valid"], earlier["data"]["test"]):
        for name in ("source", "target", "languages", "opus100"):
            del corpora[0][name]
    earlier["data"]["valid"], earlier["data"]["test"] = (
        earlier["data"]["valid"][0],
        earlier["data"]["test"][0],
    )
    del earlier["data"]["vocabulary"]["balance_temperature"]
    assert {**completed(earlier), "recipe": None} == {**resolved, "recipe": None}
    earlier["data"] |= {"noise": None, "term_hints": 0.0}
    assert {**completed(earlier), "recipe": None} == {**resolved, "recipe": None}
    earlier["data"]["noise"] = {"typos": 0.1}
    assert completed(earlier) is earlier


@pytest.mark.parametrize(
    ("written", "line", "said"),
    [
        ("data: {noise: {typos: 0.1}, train: t}", 1, "data: noise was removed: put"),
        (
            "data:\n train: t\n vocabulary:\n  type: subword_nmt\n  codes: c\n  threshold: 5",
            6,
            "set min_count",
        ),
        (
            "data: {train: t}\ntraining: {optimizer: {type: muon, rate_factor: 2}}",
            2,
            "set training.rate_factors",
        ),
        (
            "data: {train: t}\nmodel:\n encoder: {connection: {type: depth_lstm, hidden_scope: model}}",
            3,
            "stack",
        ),
    ],
)
def test_a_removed_setting_is_named_with_what_to_do_instead(
    here: Path, written: str, line: int, said: str
) -> None:
    write(here / "run.yaml", written)
    with pytest.raises(UsageError) as refused:
        load_run_file("run.yaml")
    assert refused.value.message.startswith(f"run.yaml:{line}: ")
    assert " was removed: " in refused.value.message
    assert said in refused.value.message
    assert "\n" not in refused.value.message
    neutral = re.sub(r"(threshold|rate_factor): \d", r"\1: 1", written)
    neutral = neutral.replace("{typos: 0.1}", "null").replace("hidden_scope: model", "hidden_scope: stack")
    load_run_file(write(here / "neutral.yaml", neutral))


# Lines with a setting in vain end in a star.
IDLE = [
    """
training:
  schedule: {warmup: 0, initial: 1e-4}  # *
  device: cuda
  processes: 2  # *
  label_smoothing: 0
  label_smoothing_form: uniform  # *
  validation:
    beam: 4  # *
    bleu_every: 1k  # *
data: {source: de, target: en, train: train, valid: valid}
decoding: {sampling: {}, beam: 8}  # *
""",
    """
training:
  layer_drop:
    unit: sublayer  # *
    depth: linear  # *
    rescale: true  # *
  checkpoint: {keep_best: 2}  # *
  validation: {bleu: true}  # *
data:
  source: de
  target: en
  train: train
""",
    """
model: {encoder: {layers: 2, connection: depth_lstm}, decoder: {layers: 2, connection: sdu}}
training:
  record:
    gradients: 10
    depth_weights: 10  # *
data: {source: de, target: en, train: train}
""",
]


@pytest.mark.parametrize("text", IDLE)
def test_settings_without_effect_are_refused_where_they_were_written(here: Path, text: str) -> None:
    """A line for each. The record of a run with them is read, and so is a file that extends such a file."""
    write(here / "run.yaml", text)
    with pytest.raises(UsageError) as refused:
        load_run_file("run.yaml", ["seed=2"])
    found = re.findall(
        r"^run.yaml:(\d+): ([\w.]+):.* has no effect: .+$", refused.value.message, re.MULTILINE
    )
    starred = [str(number) for number, line in enumerate(text.split("\n"), 1) if line.endswith("*")]
    assert sorted(number for number, _ in found) == sorted(starred)
    assert len(refused.value.message.split("\n")) == len(found)
    assert all(key.rpartition(".")[2] in text.split("\n")[int(number) - 1] for number, key in found)
    assert refused.value.hint
    record = yaml.safe_load(text)
    assert completed(record) is not record, "the record of an earlier version was not read"
    write(here / "later.yaml", "extends: run.yaml")
    before = load_run_file("later.yaml")
    assert before.config.model == RunFile.model_validate(record).model
    clean = yaml.safe_load(text)
    for _, key in found:
        *way, name = key.split(".")
        del reduce(lambda at, part: at[part], way, clean)[name]
    now = load_run_file(str(write(here / "clean.yaml", yaml.safe_dump(clean)))).resolved
    assert completed(before.resolved) == completed(now), "a run cannot be continued without them"


def test_only_the_command_line_is_refused_for_what_it_makes_idle(here: Path) -> None:
    write(
        here / "run.yaml",
        "{data: {source: de, target: en, train: train, valid: valid},"
        "model: {activation: gelu, encoder: {layers: 2}}, training: {validation: {bleu: true, beam: 4}}}",
    )
    plain = load_run_file("run.yaml").config
    write(here / "again.yaml", json.dumps(plain.model_dump(mode="json")))
    assert (
        load_run_file("again.yaml", ["training.validation.bleu=false"]).config.training.validation.beam == 4
    )


def test_what_may_change_in_the_middle_of_a_run() -> None:
    """Exactly these; a new setting makes another run unless its field is marked."""
    assert {
        "run",
        "decoding",
        "data.train",
        "data.valid",
        "data.test",
        "data.prepared",
        "data.vocabulary.codes",
        "data.vocabulary.folder",
        "data.vocabulary.target_codes",
        "training.max_updates",
        "training.stop_after",
        "training.precision",
        "training.device",
        "training.threads",
        "training.processes",
        "training.validation",
        "training.early_stopping",
        "training.checkpoint",
        "training.log_every",
        "training.record",
        "training.tensorboard",
        "training.compile",
        "training.pretrained.encoder",
        "training.sharding",
        "training.activation_checkpointing",
    } == {key for key in CHANGEABLE if not key.startswith("decoding.")}


def test_a_recipe_without_its_text_says_where_it_looks() -> None:
    for origin, said in (("recipe demo:3", True), ("run.yaml:3", False)):
        with pytest.raises(MissingTextError) as error, hinting_at_recipes({"data.train": origin}):
            list(read_lines(Path("none/train.de")))
        assert ("a recipe looks for its text below the current folder" in error.value.hint) == said


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"input_noise": {"source": 0.1}}, "input_noise.source: a language model has no source"),
        (
            {"layer_drop": {"encoder": 0.3, "decoder": 0.1}},
            "layer_drop.encoder is 0.3, and the model has no encoder; set it to 0, and layer_drop.decoder",
        ),
    ],
)
def test_a_language_model_refuses_what_is_of_a_source(training: dict[str, object], message: str) -> None:
    """Settings without effect would be a mistake that nobody sees; those of the decoder are fine."""
    settings = {"task": "language_model", "data": {"train": "a.txt", "valid": "b.txt"}}
    with pytest.raises(UsageError, match=message):
        load_run_file({**settings, "training": training})
    for fine in ({"input_noise": {"target": 0.1}}, {"layer_drop": 0.3}, {"layer_drop": {"decoder": 0.3}}):
        assert load_run_file({**settings, "training": fine}).config.task == "language_model"


@pytest.mark.parametrize("extends", [None, "base.yaml"])
@pytest.mark.parametrize(
    ("mapping", "arguments"),
    [
        ({"model": {"dropout": {"embedding": 0.3}}}, {"model": {"dropout": 0.2}, "run": Path("runs/second")}),
        ({"training": {"schedule": "noam"}}, {"training": {"schedule": {"warmup": 7}}}),
        ({"training": {"max_updates": 5}}, {"training": {"optimizer": {"type": "adamw", "eps": 1e-7}}}),
    ],
)
def test_the_text_of_a_mapping_has_its_arguments(
    here: Path, extends: str | None, mapping: dict[str, object], arguments: dict[str, object]
) -> None:
    """Whoever copies it to a file goes on with the same settings."""
    data = {"source": "de", "target": "en", "train": "train"}
    schedule = {"type": "cosine", "peak": 0.002, "warmup": 9, "updates": 100}
    base = {"data": data, "training": {"schedule": schedule, "max_updates": 100}}
    write(here / "base.yaml", json.dumps(base))
    settings = {**mapping, **({"data": data} if extends is None else {"extends": extends})}
    loaded = load_run_file(settings, (), arguments)
    write(here / "second.yaml", loaded.text)
    assert load_run_file("second.yaml").resolved == loaded.resolved
