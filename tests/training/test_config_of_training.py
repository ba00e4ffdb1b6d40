from __future__ import annotations

import pytest
from pydantic import ValidationError

from deepwire.training.config import EarlyStoppingConfig, TrainingConfig
from deepwire.training.state import cut_short


def test_metrics_are_named_in_any_case() -> None:
    section = {
        "validation": {"metrics": ["BLEU", "chrF"], "metric": "BLEU"},
        "early_stopping": {"metric": "chrF"},
    }
    config = TrainingConfig.model_validate(section)
    assert config.validation.text_metrics == ("bleu", "chrf")
    assert (config.validation.metric, config.early_stopping) == ("bleu", EarlyStoppingConfig(metric="chrf"))


@pytest.mark.parametrize(
    ("section", "limit"),
    [
        ({"max_updates": 1999}, "training.schedule.warmup=199"),
        ({"max_updates": 300, "schedule": {"type": "cosine", "warmup": 300}}, "takes 30 updates"),
        ({"max_updates": 301, "schedule": {"type": "cosine", "warmup": 300}}, None),
        ({"max_updates": 370, "schedule": {"type": "wsd", "warmup": 300}}, "takes 37 updates"),
        ({"max_updates": "5k", "stop_after": "1ku"}, "training.stop_after=1000"),
        ({"max_updates": 50, "schedule": {"type": "cosine", "updates": 300, "warmup": 100}}, "=50 ends"),
        ({"max_updates": 2000}, None),
        ({"stop_after": "1e"}, None),
        ({"max_updates": 1, "schedule": {"type": "constant"}}, None),
    ],
)
def test_a_run_that_ends_within_its_warmup_is_told_so(section: dict[str, object], limit: str | None) -> None:
    warning = cut_short(TrainingConfig.model_validate(section))
    assert warning is None if limit is None else warning is not None and limit in warning


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"max_updates": None}, "has no end"),
        ({"stop_after": "3e", "schedule": {"type": "cosine"}}, "schedule.updates"),
        ({"schedule": {"type": "cosine", "updates": 90, "warmup": 300}}, "training.schedule.warmup=9"),
        ({"schedule": {"type": "wsd", "updates": 90, "warmup": 80}}, "training.schedule.warmup=9"),
        (
            {"validation": {"metric": "bleu"}},
            "metric is bleu, which is not scored: add it to validation.metrics",
        ),
        ({"early_stopping": {"metric": "ter"}, "validation": {"metrics": ["chrf"]}}, "metric is ter"),
        ({"validation": {"metrics": ["meteor"]}}, "metrics"),
        ({"validation": {"every": 100, "bleu_every": 150}}, "not a multiple of every"),
        ({"early_stopping": {"metric": "bleu"}}, "add it to validation.metrics"),
        ({"sharding": "full", "record": {"gradients": 5}}, "set sharding to none"),
        ({"device": "gpu"}, "write auto, cpu, cuda or cuda:N"),
        ({"device": "cuda:x"}, "write auto, cpu, cuda or cuda:N"),
        ({"learning_rate": 1}, "learning_rate"),
        ({"compile": True, "guided_alignment": 1}, "compile and guided_alignment exclude each other"),
        ({"sim_cut": 1, "r_drop": 1}, "r_drop and sim_cut exclude each other"),
        ({"sharding": "full", "optimizer": "muon"}, "muon needs every matrix whole"),
        ({"layer_drop": 1}, "from 0 to below 1, not 1"),
        ({"input_noise": {"source": {"cutoff": 0.6, "unknown": 0.4}}}, "are 1 together"),
    ],
)
def test_impossible_settings_are_refused(section: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainingConfig.model_validate(section)
