"""Connections that begin with a pass over the first batch, or change with the updates."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from toy_run import JobMaker, run_training

from deepwire.checkpoint.model_path import average_models
from deepwire.checkpoint.store import load_model, parameter_count
from deepwire.model.connections.admin import Admin
from deepwire.model.connections.scaled_post_norm import BranchNorm
from deepwire.training.session import open_session
from deepwire.training.spec import TrainingSpec

LAYERS = {"layers": 2}
ADMIN = {side: {**LAYERS, "connection": "admin"} for side in ("encoder", "decoder")}
BRANCH_NORM = {
    side: {**LAYERS, "connection": {"type": "branch_norm", "updates": 16}} for side in ("encoder", "decoder")
}


def scales_of(job: TrainingSpec) -> list[float]:
    """The scales that a run of Admin begins with; each vector is one number."""
    found = []
    with open_session(job, quiet=True) as session:
        for stack in (session.model.encoder, session.model.decoder):
            assert isinstance(stack.connection, Admin)
            assert not stack.connection.profiling
            for scale in stack.connection.scales:
                assert scale.detach().unique().numel() == 1
                found.append(scale[0].item())
        session.stop()
    return found


def test_admin_begins_with_what_the_first_batch_shows(make_job: JobMaker) -> None:
    """The first scale of each stack is 1; from the second on they grow with what every sub-layer adds."""
    first = scales_of(make_job("first", model=ADMIN))
    assert first[0] == first[4] == 1.0
    assert len(first) == 10
    for scales in (first[1:4], first[5:]):
        assert scales == sorted(set(scales))
    assert scales_of(make_job("again", model=ADMIN)) == first
    assert scales_of(make_job("other", model=ADMIN, seed=2)) != first


def test_admin_is_not_profiled_where_the_numbers_are_given(make_job: JobMaker) -> None:
    """The other ways to begin, and a run that begins with another model, keep their numbers."""
    one = {side: {**LAYERS, "connection": {"type": "admin", "initial": "one"}} for side in ADMIN}
    assert set(scales_of(make_job("one", model=one))) == {1.0}
    trained = make_job("trained", model=ADMIN, max_updates=20)
    run_training(trained, quiet=True)
    kept = load_model(trained.run.checkpoint_path(20)).model
    job = make_job("tuned", model=ADMIN, start_from=str(trained.run.path))
    with open_session(job, quiet=True) as session:
        for name, value in session.model.named_parameters():
            assert torch.equal(value, kept.get_parameter(name)), name
        session.stop()


def test_branch_norm_follows_the_updates_and_is_saved(make_job: JobMaker) -> None:
    """min(1, t / T), in the model of each checkpoint, which translates as it was validated."""
    job = make_job(model=BRANCH_NORM, max_updates=20, validation={"every": 4}, checkpoint={"keep_last": 9})
    with open_session(job, quiet=True) as session:
        for update in session:
            connection = session.model.encoder.connection
            assert isinstance(connection, BranchNorm)
            assert float(connection.factor) == pytest.approx(min(1.0, update.number / 16))
    for number, factor in ((4, 0.25), (12, 0.75), (20, 1.0)):
        folder = job.run.checkpoint_path(number)
        for stack in (load_model(folder).model.encoder, load_model(folder).model.decoder):
            assert isinstance(stack.connection, BranchNorm)
            assert float(stack.connection.factor) == factor
    loaded = load_model(job.run.checkpoint_path(20)).model
    assert parameter_count(folder) == sum(parameter.numel() for parameter in loaded.parameters())
    mean = job.run.path / "mean"
    average_models([job.run.checkpoint_path(number) for number in (4, 12)], mean)
    assert float(load_file(mean / "model.safetensors")["state.encoder.connection.factor"]) == 0.5
    assert float(load_model(mean).model.decoder.connection.get_buffer("factor")) == 0.5


def test_fine_tuning_leaves_branch_norm_as_it_was(make_job: JobMaker) -> None:
    """A model to begin with is not taken back to the beginning of its training."""
    trained = make_job("trained", model=BRANCH_NORM, max_updates=8, validation={"every": 8})
    run_training(trained, quiet=True)
    job = make_job("tuned", model=BRANCH_NORM, max_updates=2, start_from=str(trained.run.path))
    with open_session(job, quiet=True) as session:
        for _ in session:
            assert float(session.model.decoder.connection.get_buffer("factor")) == 0.5
