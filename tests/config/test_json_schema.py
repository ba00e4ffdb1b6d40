"""The schema accepts what `load_run_file` accepts, and refuses keys and values that it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deepwire.config.json_schema import schema_of
from deepwire.config.section import described_keys
from deepwire.config.yaml_tree import Problems, SourceLocation, parse_yaml, plain
from deepwire.errors import UsageError
from deepwire.runfile import RunFile, load_run_file

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "src/deepwire/recipes").rglob("*.yaml"))
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").glob("*/*.yaml"))
    # The other files are plans of experiments; names of the plugin are known only where it is installed.
    if re.search(r"^(data|extends):", path.read_text("utf-8"), re.MULTILINE) and path.parent.name != "plugin"
]
TEXT = "data: {source: de, target: en, train: train}\n"

RIGHT = {
    "shorthands": TEXT + "training: {max_updates: 20k, batch_tokens: 4_096}",
    "a length": TEXT + "training: {stop_after: 30e}",
    "a choice by its name": TEXT + "model: {encoder: {connection: depth_lstm}, dropout: 0.2}",
    "a choice of another package": TEXT + "model: {encoder: {connection: my_package.MyConfig}}",
    "a choice with settings": TEXT + "model: {encoder: {connection: {type: depth_lstm, share: all}}}",
    "several corpora": "data: {source: de, target: en, train: [a, {prefix: b, weight: 2}]}",
    "directions": "data: {directions: [de-en, {between: [en], and: [fr, cs]}], train: a}",
    "a part of what it extends": "extends: demo\nmodel: {encoder: {connection: {share: all}}}",
    "a schedule without type": TEXT + "training: {schedule: {peak: 1e-3, warmup: 4k}}",
    "names in a list": "data: {source: de, target: en, train: a, valid: b}\n"
    "training: {validation: {metrics: [bleu, chrF], bleu_every: 1k}}",
    "freezing one pattern": TEXT + "training: {freeze: encoder.*}",
}
WRONG = {
    "an unknown key": TEXT + "training: {batch_token: 4096}",
    "an unknown section": TEXT + "trainer: {}",
    "a text for a number": TEXT + "model: {heads: x}",
    "a text for a count": TEXT + "training: {max_updates: many}",
    "too small": TEXT + "model: {d_model: 0}",
    "an unknown choice": TEXT + "model: {encoder: {connection: depth_lstmm}}",
    "a key of another choice": TEXT + "model: {encoder: {connection: {type: pre_norm, share: all}}}",
    "an unknown schedule": TEXT + "training: {schedule: cosin}",
    "a probability above 1": TEXT + "model: {dropout: 1.5}",
    "an unknown name in a list": TEXT + "training: {validation: {metrics: [blue]}}",
    "an empty list": "data: {source: de, target: en, train: []}",
    "a list for a mapping": TEXT + "model: [1]",
}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    schema = schema_of(RunFile, "run file")
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def value_of(text: str) -> object:
    """As an editor reads it, with the rules of YAML 1.2."""
    problems = Problems()
    tree = parse_yaml(text, SourceLocation("run.yaml", 1, Path.cwd()), problems)
    problems.raise_if_any()
    assert tree is not None
    return plain(tree)


def mistakes(schema: dict[str, Any], text: str) -> list[str]:
    found = jsonschema.Draft202012Validator(schema).iter_errors(value_of(text))
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message[:150]}" for error in found]


def test_all_recipes_and_examples_are_right(schema: dict[str, Any]) -> None:
    assert len(RECIPES) > 200
    assert len(EXAMPLES) >= 3
    files = [*RECIPES, *EXAMPLES]
    wrong = {path.name: found for path in files if (found := mistakes(schema, path.read_text("utf-8")))}
    assert wrong == {}


@pytest.mark.parametrize("name", RIGHT)
def test_right_files_are_accepted(name: str, schema: dict[str, Any], tmp_path: Path) -> None:
    assert mistakes(schema, RIGHT[name]) == []
    if "my_package" not in RIGHT[name]:
        (tmp_path / "run.yaml").write_text(RIGHT[name], encoding="utf-8")
        load_run_file(tmp_path / "run.yaml")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused(name: str, schema: dict[str, Any], tmp_path: Path) -> None:
    assert len(mistakes(schema, WRONG[name])) >= 1
    (tmp_path / "run.yaml").write_text(WRONG[name], encoding="utf-8")
    with pytest.raises(UsageError):
        load_run_file(tmp_path / "run.yaml")


def test_every_key_is_described_and_has_a_default_or_is_required(schema: dict[str, Any]) -> None:
    undescribed = [key for key, text in described_keys(RunFile) if not text and not key.endswith("type")]
    assert undescribed == []
    keys = schema["$defs"]["ModelConfig"]["properties"]
    assert keys["d_model"]["default"] == 512
    assert "width" in keys["d_model"]["description"]
    assert schema["$defs"]["StackConfig"]["properties"]["connection"]["default"] == "pre_norm"
