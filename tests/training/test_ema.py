from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn
from toy_run import JobMaker, records, run_training

from deepwire.checkpoint.store import load_model
from deepwire.distributed.process_group import ProcessGroup
from deepwire.training.device import PrecisionPolicy
from deepwire.training.extras import EmaConfig, MovingAverage
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.validation import Validator


def averages(config: EmaConfig, parameters: dict[str, nn.Parameter]) -> MovingAverage:
    model = nn.ParameterDict({name.replace(".", "_"): one for name, one in parameters.items()})
    return MovingAverage(parameters, config, ParallelStrategy(model, ProcessGroup()))  # type: ignore[arg-type]


@given(
    values=st.lists(st.floats(-10, 10), min_size=1, max_size=12),
    decay=st.floats(0.01, 0.99),
    start=st.integers(0, 5),
    warmup=st.booleans(),
)
def test_the_average_is_that_of_the_definition(
    values: list[float], decay: float, start: int, warmup: bool
) -> None:
    weight = nn.Parameter(torch.zeros(3))
    average = averages(EmaConfig(decay=decay, start=start, warmup=warmup, model="weights"), {"a": weight})
    wanted = 0.0
    for update, value in enumerate(values, 1):
        with torch.no_grad():
            weight.fill_(value)
        average.after_step(update)
        since = update - start
        keeps = min(decay, (1 + since) / (10 + since)) if warmup else decay
        wanted = value if since <= 0 else keeps * wanted + (1 - keeps) * value
    assert average.state()["average.a"].tolist() == pytest.approx([wanted] * 3, abs=1e-4)


SHORT = {"max_updates": 8, "validation": {"every": 8}}


def test_training_is_the_same_with_and_without_averages(make_job: JobMaker) -> None:
    plain = make_job("plain", **SHORT)
    run_training(plain, quiet=True)
    weights = load_file(plain.run.checkpoint_path(8) / "model.safetensors")
    for model, other in (("average", "weights"), ("weights", "average")):
        job = make_job(model, **SHORT, ema={"decay": 0.9, "model": model})
        run_training(job, quiet=True)
        assert records(job.run, "train") == records(plain.run, "train")
        folder = job.run.checkpoint_path(8)
        shown, beside = (load_file(folder / f"{name}.safetensors") for name in ("model", "optimizer"))
        kept = {name.partition(".")[2]: one for name, one in beside.items() if name.startswith(f"{other}.")}
        raw, mean = (kept, shown) if model == "average" else (shown, kept)
        assert all(torch.equal(raw[name], weights[name]) for name in weights)
        assert not any(torch.equal(mean[name], weights[name]) for name in weights)
        record = json.loads((folder / "config.json").read_text())
        assert record["metadata"]["ema"]["model"] == model
        same = records(job.run, "valid") == records(plain.run, "valid")
        assert same == (model == "weights")


def test_validation_scores_what_the_checkpoint_holds(make_job: JobMaker) -> None:
    job = make_job(**SHORT, ema={"decay": 0.9})
    run_training(job, quiet=True)
    loaded = load_model(job.run.checkpoint_path(8))
    assert job.prepared.valid is not None
    validator = Validator(
        job.prepared.valid,
        job.config.validation,
        smoothing=(job.config.label_smoothing, job.config.label_smoothing_form),
        source_bos=False,
        vocabularies=job.prepared.vocabularies,
        translate=None,
        score=None,
        processes=ProcessGroup(),
    )
    precision_policy = PrecisionPolicy.choose("fp32", torch.device("cpu"))
    found = validator.run(loaded.model, precision_policy, 8, lambda: False)
    assert found is not None
    assert found.scores["loss"] == pytest.approx(records(job.run, "valid")[-1]["loss"], rel=1e-6)
