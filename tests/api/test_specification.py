"""What the log of a training says about its settings and its text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from deepwire.api.specification import training_spec
from deepwire.data.prepare.prepared import prepare
from deepwire.runfile import load_run_file


@pytest.mark.parametrize(
    ("model", "sides"),
    [
        ({"max_length": 4}, ("target", "source")),
        ({"max_length": 4, "decoder": {"layers": 1, "positions": "sinusoidal"}}, ("source",)),
        ({"max_length": 12, "architecture": "decoder_only"}, ("source and target",)),
        ({"max_length": 100}, ()),
    ],
    ids=str,
)
def test_text_beyond_the_learned_positions_is_noted(
    tmp_path: Path, data: Mapping[str, object], model: Mapping[str, object], sides: tuple[str, ...]
) -> None:
    layers = {"decoder": {"layers": 1}} if "architecture" in model else {"encoder": {"layers": 1}}
    sizes = {"d_model": 16, "heads": 2, "feed_forward": 16, "positions": "learned"}
    text = {**data, "source": "src", "target": "trg", "vocabulary": {"type": "words"}}
    shape = {**sizes, **layers, **model}
    settings = {"run": str(tmp_path / "run"), "data": text, "model": shape}
    loaded = load_run_file(settings)
    prepared = prepare(loaded.config.data, seed=1)
    notes = training_spec(loaded, prepared).notes
    assert len(notes) == len(sides)
    for side, note in zip(sides, notes, strict=True):
        assert note.startswith(f"model.max_length is {model['max_length']}, and the longest {side} of the")
        needed = int(note.split(" needs ")[1].split()[0])
        enough = load_run_file({**settings, "model": {**shape, "max_length": needed}})
        assert not any(f"longest {side} " in line for line in training_spec(enough, prepared).notes)


def test_blocks_of_a_language_model_fill_its_positions(tmp_path: Path, data: Mapping[str, object]) -> None:
    """A block of twelve is stored with the token before it, and needs no more than twelve positions."""
    text = {**data, "target": "trg", "text": {"block": 12}, "vocabulary": {"type": "words"}}
    sizes = {"d_model": 16, "heads": 2, "feed_forward": 16, "positions": "learned", "max_length": 12}
    model = {**sizes, "decoder": {"layers": 1}}
    settings = {"task": "language_model", "run": str(tmp_path / "run"), "data": text, "model": model}
    loaded = load_run_file(settings)
    prepared = prepare(loaded.config.data, seed=1)
    assert training_spec(loaded, prepared).notes == ()
