from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from deepwire.training.job import Job
from deepwire.training.run_record import RunRecord

JobMaker = Callable[..., Job]


@pytest.mark.parametrize(
    ("width", "wanted", "expected"), [(255, None, 2048), (256, None, 512), (1024, None, 512), (256, 99, 99)]
)
def test_micro_batches_are_smaller_where_the_model_is_wide(
    make_job: JobMaker, width: int, wanted: int | None, expected: int
) -> None:
    job = make_job(micro_batch_tokens=wanted)
    job = replace(job, resolved={**job.resolved, "model": {"d_model": width}})
    record = RunRecord.settle(job, torch.device("cpu"), 1, continued=False)
    assert record.micro_batch_tokens == expected
