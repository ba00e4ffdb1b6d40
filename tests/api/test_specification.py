"""What the log of a training says about its settings and its text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from deepwire.api.specification import training_spec
from deepwire.data.prepare.prepared import prepare
from deepwire.runfile import load_run_file


@pytest.mark.parametrize(("most", "noted"), [(4, True), (100, False)])
def test_text_beyond_the_learned_positions_is_noted(
    tmp_path: Path, data: Mapping[str, object], most: int, noted: bool
) -> None:
    sizes = {"d_model": 16, "heads": 2, "feed_forward": 16, "positions": "learned", "max_length": most}
    text = {**data, "source": "src", "target": "trg", "vocabulary": {"type": "words"}}
    model = {**sizes, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
    loaded = load_run_file({"run": str(tmp_path / "run"), "data": text, "model": model})
    notes = training_spec(loaded, prepare(loaded.config.data, seed=1)).notes
    assert any("the last share a position" in note for note in notes) == noted


def test_blocks_of_a_language_model_fill_its_positions(tmp_path: Path, data: Mapping[str, object]) -> None:
    """A block of twelve is stored with the token before it, and needs no more than twelve positions."""
    text = {**data, "target": "trg", "text": {"block": 12}, "vocabulary": {"type": "words"}}
    sizes = {"d_model": 16, "heads": 2, "feed_forward": 16, "positions": "learned", "max_length": 12}
    model = {**sizes, "decoder": {"layers": 1}}
    settings = {"task": "language_model", "run": str(tmp_path / "run"), "data": text, "model": model}
    loaded = load_run_file(settings)
    prepared = prepare(loaded.config.data, seed=1)
    assert training_spec(loaded, prepared).notes == ()
