"""Updates whose loss or gradient is not finite."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_run import JobMaker, records, run_training

from deepwire.checkpoint.store import load_model
from deepwire.errors import DivergedError, ResourceError
from deepwire.model.translation_model import LossSums, TranslationModel
from deepwire.training.run import load_state
from deepwire.training.spec import TrainingSpec


def poisoned(model: TranslationModel, bad: Callable[[int], bool]) -> Callable[..., LossSums]:
    """``model.loss``, not a number in the calls that ``bad`` names (counted from 1)."""
    loss, calls = model.loss, [0]

    def wrapped(*inputs: Any, **named: Any) -> LossSums:
        sums = loss(*inputs, **named)
        if model.training:
            calls[0] += 1
            if bad(calls[0]):
                return sums._replace(smoothed=sums.smoothed * float("nan"))
        return sums

    return wrapped


def poison(job: TrainingSpec, bad: Callable[[int], bool]) -> TrainingSpec:
    def build() -> TranslationModel:
        model = job.build()
        model.loss = poisoned(model, bad)  # type: ignore[method-assign]
        return model

    return dataclasses.replace(job, build=build)


def test_a_bad_update_is_skipped_before_it_touches_the_weights(make_job: JobMaker) -> None:
    job = make_job(max_updates=6, log_every=1, batch_tokens=1)  # one pair, one call for each update
    run_training(poison(job, lambda call: call == 4), quiet=True)
    state = load_state(job.run.checkpoint_path(6))
    assert (state.update, state.steps, state.bad_in_a_row) == (6, 5, 0)
    model = load_model(job.run.checkpoint_path(6)).model
    assert all(bool(torch.isfinite(value).all()) for value in model.parameters())
    bad = [json.loads(line) for line in job.run.bad_batch.read_text().splitlines()]
    assert [one["update"] for one in bad] == [4]
    (place,), ((source, target),) = bad[0]["lines"], bad[0]["texts"]
    corpus, _, line = place.rpartition(":")
    texts = job.prepared.folder.parents[1]
    for side, text in (("src", source), ("trg", target)):
        assert (texts / f"{Path(corpus).name}.{side}").read_text().split("\n")[int(line) - 1] == text
    logged = {record["update"]: record["loss"] for record in records(job.run, "train")}
    assert logged[4] is None
    assert math.isfinite(logged[5])


@pytest.mark.parametrize("metrics", [[], ["bleu"]])
def test_a_validation_loss_that_is_not_finite_ends_the_run(make_job: JobMaker, metrics: list[str]) -> None:
    def build() -> TranslationModel:
        model = job.build()
        torch.nn.init.constant_(next(model.decoder.parameters()), math.inf)
        return model

    job = make_job(batch_tokens=1, max_updates=3, validation={"every": 3, "metrics": metrics})
    with pytest.raises(DivergedError, match="validation loss is not finite after update 3"):
        run_training(dataclasses.replace(job, build=build), quiet=True)


def test_a_run_that_ends_in_a_bad_update_has_diverged(make_job: JobMaker) -> None:
    job = make_job(batch_tokens=1, max_updates=3)
    job = dataclasses.replace(job, prepared=dataclasses.replace(job.prepared, valid=None))
    with pytest.raises(DivergedError, match=r"1 updates? in a row \(last good update 2\)"):
        run_training(poison(job, lambda call: call == 3), quiet=True)


def test_ten_bad_updates_in_a_row_end_the_run(make_job: JobMaker) -> None:
    job = make_job(batch_tokens=1)
    with pytest.raises(DivergedError, match=r"10 updates in a row \(last good update 14\)") as caught:
        run_training(poison(job, lambda call: call >= 15 or call in (5, 6, 7)), quiet=True)
    assert caught.value.exit_code == 5
    bad = [json.loads(line)["update"] for line in job.run.bad_batch.read_text().splitlines()]
    assert bad == [5, 6, 7, *range(15, 25)]
    assert "not finite" in job.run.log.read_text()
    # It goes on from update 20, which was the sixth.
    with pytest.raises(DivergedError, match=r"10 updates in a row \(last good update 14\)"):
        run_training(poison(job, lambda _call: True), quiet=True)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        MemoryError("Unable to allocate 9.00 GiB for an array with shape (9,) and data type uint16"),
    ],
    ids=["GPU", "CPU", "numpy"],
)
def test_memory_that_runs_out_makes_updates_of_smaller_pieces_and_ends_a_validation(
    make_job: JobMaker, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """What the validation needs is named: settings of training cannot be changed any more."""
    job = make_job(max_updates=2, checkpoint={"every": 1}, validation={"every": 2})

    def build() -> TranslationModel:
        model = job.build()
        loss = model.loss

        def wrapped(source: torch.Tensor, *inputs: Any, **named: Any) -> LossSums:
            if not model.training or len(source) > 4:
                raise error
            return loss(source, *inputs, **named)

        model.loss = wrapped
        return model

    with pytest.raises(ResourceError, match="out of memory in the validation after update 2") as caught:
        run_training(dataclasses.replace(job, build=build))
    assert "u 1 out of memory: from here on micro-batches are cut in 2" in capsys.readouterr().err
    assert "training.validation.max_tokens" in caught.value.hint
    assert load_state(job.run.checkpoint_path(1)).pieces > 1
