from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture
def inspect(command):
    """``deepwire inspect ... --json`` as a mapping."""
    return lambda *arguments: json.loads(command("inspect", *arguments, "--json").out)


def test_the_parts_add_up_to_the_total(inspect) -> None:
    for recipe in ("multi30k/transformer-tiny", "multi30k/depth-lstm-tiny", "demo"):
        record = inspect(recipe)
        assert record["parameters"] == sum(record["parts"].values())
        assert all(count >= 0 for count in record["parts"].values())


def test_a_transformer_has_the_parameters_of_the_formula(inspect) -> None:
    """Tied embeddings; attention 4 d^2 + 4 d; feed-forward 2 d f + f + d; two numbers a norm."""
    vocabulary, d, f, layers = 1000, 128, 256, 4
    attention, feed_forward, norm = 4 * d * d + 4 * d, 2 * d * f + f + d, 2 * d
    encoder = layers * (attention + feed_forward + 2 * norm)
    decoder = layers * (2 * attention + feed_forward + 3 * norm)
    record = inspect("multi30k/transformer-tiny", "--vocabulary-size", str(vocabulary))
    without_biases = layers * 3 * 4 * d + vocabulary + 4 * d
    assert abs(record["parameters"] - (vocabulary * d + encoder + decoder)) <= without_biases


def test_a_model_is_inspected_as_it_was_built(inspect, tmp_path: Path) -> None:
    built = inspect("demo", "--vocabulary-size", "77")
    record = {"format": 1, "model": built["model"], "source_vocabulary": 77, "target_vocabulary": 77}
    (tmp_path / "config.json").write_text(json.dumps(record))
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "manifest.json").write_text("{}")
    found = inspect(str(tmp_path))
    assert (found["kind"], found["parameters"], found["parts"]) == (
        "model",
        built["parameters"],
        built["parts"],
    )


def test_parameters_of_each_target_language(inspect, refused, tmp_path: Path) -> None:
    """Two numbers a feature for each language in every norm, and a matrix of each between the stacks."""
    settings = ("model.languages.norm=true", "model.languages.transform=identity")
    run = tmp_path / "run.yaml"
    run.write_text("data: {directions: [en-de, fr-en, en-cs], train: text}\nmodel: {d_model: 16, heads: 2}\n")
    plain = inspect(str(run), "--vocabulary-size", "100")
    record = inspect(str(run), *settings, "--vocabulary-size", "100")
    norms = 6 * 2 + 6 * 3 + 2  # pre-norm: one behind each stack
    assert record["languages"] == 4
    assert record["parts"]["language transform"] == 4 * 16 * 16
    assert record["parameters"] - plain["parameters"] == 4 * 16 * 16 + 3 * norms * 2 * 16
    given = ("inspect", "multi30k/transformer-tiny", *settings, "--vocabulary-size", "100")
    refused(2, "needs several target languages", *given)
