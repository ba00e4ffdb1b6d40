from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from deepwire.training.run import Decisions
from deepwire.training.spec import TrainingSpec

JobMaker = Callable[..., TrainingSpec]


@pytest.mark.parametrize(
    ("width", "precision", "wanted", "expected"),
    [
        (255, "fp32", None, 2048),
        (256, "fp32", None, 512),
        (1024, "fp32", None, 512),
        (1024, "bf16", None, 2048),
        (256, "fp32", 99, 99),
    ],
)
def test_micro_batches_are_smaller_where_float32_meets_a_wide_model(
    make_job: JobMaker, width: int, precision: str, wanted: int | None, expected: int
) -> None:
    job = make_job(micro_batch_tokens=wanted, precision=precision)
    job = replace(job, resolved={**job.resolved, "model": {"d_model": width}})
    decisions = Decisions.make(job, torch.device("cpu"), 1)
    assert decisions.micro_batch_tokens == expected
