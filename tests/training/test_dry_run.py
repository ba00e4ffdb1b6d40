from __future__ import annotations

import pytest
from toy_run import JobMaker, records, run_training

from deepwire.training.dry_run import dry_run


def test_it_tells_what_the_run_will_need_and_keeps_nothing(make_job: JobMaker) -> None:
    job = make_job(max_updates=None, stop_after="2e", ema={})
    found = dry_run(job)
    assert not job.run.path.exists()
    outcome = run_training(job, quiet=True)
    state = records(job.run, "train")
    assert found.loss == pytest.approx(state[0]["loss"], rel=1e-6)
    assert found.updates_in_run == pytest.approx(state[-1]["update"], rel=0.1)
    assert found.updates_in_epoch == pytest.approx(state[-1]["update"] / 2, rel=0.1)
    assert outcome.best is not None
    on_disk = sum(
        (outcome.best.path / f"{name}.safetensors").stat().st_size for name in ("model", "optimizer")
    )
    assert found.checkpoint == pytest.approx(on_disk, rel=0.2)
    assert found.parameters == sum(one.numel() for one in job.build().parameters())
    assert found.seconds * found.tokens_per_second == pytest.approx(200, rel=0.3)
    assert found.memory > 50_000_000


@pytest.mark.parametrize(("updates", "wanted"), [(10, 10), (None, 100)])
def test_the_first_limit_counts(make_job: JobMaker, updates: int | None, wanted: float) -> None:
    found = dry_run(make_job(max_updates=updates, stop_after="20kt"))
    assert found.updates_in_run == pytest.approx(wanted, rel=0.2)
