from __future__ import annotations

from collections.abc import Callable

from deepwire.data.batches.batching import StreamPosition
from deepwire.testing import small_model
from deepwire.training.log import RunLog, read_records
from deepwire.training.progress import Display
from deepwire.training.run import TrainingState
from deepwire.training.spec import TrainingSpec


def test_a_model_without_weights_of_layers_leaves_no_records(make_job: Callable[..., TrainingSpec]) -> None:
    """Its run file may inherit the wish."""
    job = make_job(record={"depth_weights": 2})
    job.run.path.mkdir()
    log, state = RunLog(job), TrainingState(StreamPosition())
    with Display(job.run.log, quiet=True) as display, log.opened(display, state, continued=False):
        log.depth_weights(2, small_model({"encoder": {"connection": "frac"}}))
        for update in (3, 4):
            log.depth_weights(update, small_model({"encoder": {"aggregation": "dwa"}}))
    (written,) = read_records(job.run.depth_weights)
    assert {*written} == {"update", "encoder.dwa"}
    assert written["update"] == 4
