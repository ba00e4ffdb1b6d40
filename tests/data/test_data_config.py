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
    ("corpus", "said"),
    [
        ({}, "exactly one of"),
        ({"prefix": "a", "source_file": "b", "target_file": "c"}, "exactly one of"),
        ({"prefix": "a", "source_column": 1}, "for tsv and jsonl only"),
        ({"tsv": "a", "source_column": 0}, "greater than or equal to 1"),
        ({"prefix": "a", "weight": 0}, "greater than 0"),
        ({"prefx": "a"}, "not permitted"),
    ],
)
def test_impossible_corpora_are_refused(corpus: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CorpusConfig.model_validate(corpus)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train": []}, "at least 1"),
        ({"train": {"jsonl": "a"}, "source": "de", "target": "de"}, "same text"),
        ({"train": "a", "source": "d/e"}, "pattern"),
        (
            {"train": "a", "valid": {"prefix": "a", "more_references": ["b"]}},
            "for test with source and target, not in valid",
        ),
        ({"train": "a", "filters": {"max_ratio": 0.5}}, "greater than or equal to 1"),
    ],
)
def test_impossible_data_sections_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DataConfig.model_validate({"source": "de", "target": "en", **settings})
