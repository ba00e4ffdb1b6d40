from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from deepwire.data.data_config import CorpusConfig, DataConfig


@pytest.mark.parametrize(
    "train",
    [
        "corpus/train",
        ["corpus/train"],
        {"prefix": "corpus/train"},
        [{"prefix": "corpus/train", "weight": 1}],
    ],
)
def test_train_accepts_a_prefix_in_every_form(train: object) -> None:
    data = DataConfig.model_validate({"train": train})
    assert data.train == [CorpusConfig(prefix=Path("corpus/train"))]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train": {}}, "exactly one of"),
        ({"train": {"prefix": "a", "source_file": "b", "target_file": "c"}}, "exactly one of"),
        ({"train": {"prefix": "a", "source_column": 1}}, "for tsv and jsonl only"),
        ({"train": {"jsonl": "a"}, "source": "de", "target": "de"}, "same text"),
        ({"train": "a", "source": "d/e"}, "pattern"),
        (
            {"train": "a", "valid": {"prefix": "a", "more_references": ["b"]}},
            "for test with source and target, not in valid",
        ),
    ],
)
def test_impossible_data_sections_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DataConfig.model_validate({"source": "de", "target": "en", **settings})
