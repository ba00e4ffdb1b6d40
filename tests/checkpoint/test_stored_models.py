"""Models that earlier versions wrote load for ever, and say what they said then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepwire.decoding.model_loading import load

STORED = Path(__file__).parent / "stored"
FOLDERS = sorted(path.parent for path in STORED.glob("*/expected.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_stored_model_says_what_it_said(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    translator = load([str(folder / "model")], "cpu", "fp32")
    best = list(translator.translations(expected["sources"]))
    assert [one.text for one in best] == expected["translations"]
    assert [one.score for one in best] == pytest.approx(expected["scores"], rel=1e-4, abs=1e-4)
    # Real sentences, so that the test cannot pass with a model that says nothing.
    assert all(len(text.split()) >= 4 for text in expected["translations"])
