"""What a checkpoint says of a run, and whether a run may go on with other settings or text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deepwire.data.batches.batching import StreamPosition
from deepwire.errors import ModelError, UsageError
from deepwire.runfile import CHANGEABLE
from deepwire.training.config import EarlyStoppingConfig
from deepwire.training.run import Decisions
from deepwire.training.spec import TrainingSpec, require_same_settings
from deepwire.training.state import Patience, TrainingState

CPU = torch.device("cpu")


def test_patience_counts_scores_without_improvement() -> None:
    config, patience = EarlyStoppingConfig(metric="bleu", patience=2, min_improvement=0.5), Patience()
    exhausted = []
    for scores in (
        {"bleu": 10.0},
        {"loss": 1.0},
        {"bleu": 10.4},
        {"bleu": 10.6},
        {"bleu": 1.0},
        {"bleu": 11.0},
    ):
        patience.update(config, scores)
        exhausted.append(patience.exhausted(config))
    assert exhausted == [False, False, False, False, False, True]
    assert patience.best == 10.6


def test_patience_takes_lower_losses_and_no_nan() -> None:
    config, patience = EarlyStoppingConfig(patience=3), Patience()
    for loss in (float("nan"), 3.0, 2.0, float("nan"), 2.5):
        patience.update(config, {"loss": loss})
    assert (patience.best, patience.waited) == (2.0, 2)


def test_patience_begins_anew_with_another_metric() -> None:
    patience = Patience()
    scores = {"bleu": 30.0, "chrf": 55.0, "ter": 50.0}
    for metric in ("chrf", "bleu", "ter", "ter"):
        patience.update(EarlyStoppingConfig(metric=metric), scores)
    assert (patience.best, patience.waited, patience.metric) == (50.0, 1, "ter")


def test_state_comes_back_to_the_last_bit() -> None:
    state = TrainingState(
        StreamPosition(3, 1, 4, 99),
        update=99,
        epochs=1 / 3,
        patience=Patience(0.1 + 0.2, 4),
        scores={"loss": 1 / 7},
        interval=[1e-300, 2 / 3],
    )
    assert TrainingState.from_json(state.to_json()) == state


@pytest.mark.parametrize(
    ("key", "value"),
    {
        "epoch": 10**18,
        "pairs": -1,
        "steps": 2.5,
        "update": "20",
        "pieces": True,
        "seconds": float("nan"),
        "scores": {"loss": "low"},
        "interval": [None],
        "position.epoch": 10**18,
        "position.number": 21,
        "patience.waited": "long",
        "position": {},
    }.items(),
)
def test_a_state_that_makes_no_sense_is_refused(key: str, value: object) -> None:
    state = json.loads(json.dumps(TrainingState(StreamPosition(number=20), update=20).to_json()))
    assert TrainingState.from_json(state).update == 20
    *inner, name = key.split(".")
    (state[inner[0]] if inner else state)[name] = value
    with pytest.raises(ModelError, match="the stored training state is damaged"):
        TrainingState.from_json(state)


@pytest.mark.parametrize(
    ("width", "precision", "wanted", "expected"),
    [
        (255, "fp32", None, 2048),
        (256, "fp32", None, 512),
        (1024, "bf16", None, 2048),
        (256, "fp32", 99, 99),
    ],
)
def test_micro_batches_are_smaller_where_float32_meets_a_wide_model(
    make_job: Callable[..., TrainingSpec], width: int, precision: str, wanted: int | None, expected: int
) -> None:
    job = make_job(micro_batch_tokens=wanted, precision=precision)
    job = replace(job, resolved={**job.resolved, "model": {"d_model": width}})
    assert Decisions.make(job, CPU, 1).micro_batch_tokens == expected


def test_changes_are_listed_by_key() -> None:
    before = {"training": {"ema": {"decay": 0.9}, "early_stopping": None}}
    now: dict[str, dict[str, object]] = {"training": {"early_stopping": {"patience": 3}}}
    with pytest.raises(UsageError, match=r"original run: training\.ema\.decay: 0\.9 -> null"):
        require_same_settings(Path("run"), before, now, CHANGEABLE)
    now["training"]["ema"] = {"decay": 0.9}
    assert require_same_settings(Path("run"), before, now, CHANGEABLE) == [
        "training.early_stopping.patience: null -> 3"
    ]
