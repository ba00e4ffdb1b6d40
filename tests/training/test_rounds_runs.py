"""Recurrent depth in whole runs: each update draws its rounds, and a run goes on exactly."""

from __future__ import annotations

from collections.abc import Callable

from toy_run import run_training

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.model.recurrent_depth import RecurrentStack
from deepwire.training.spec import TrainingSpec

MODEL = {
    "encoder": {"layers": 3, "recurrence": {"prelude": 1, "coda": 1, "rounds": 4, "backward": 2}},
    "decoder": {"layers": 1},
}


def test_a_run_with_rounds_goes_on_exactly(
    monkeypatch,
    make_job: Callable[..., TrainingSpec],
    read_records: Callable[..., list[dict[str, object]]],
    weights_digest: Callable[[RunDirectory, int], list[str]],
) -> None:
    """Updates run other numbers of rounds, the same ones whether or not a run was interrupted."""
    seen: list[int] = []
    forward = RecurrentStack.forward

    def noting(self: RecurrentStack, *given, **named):
        if self.training:
            seen.append(self.training_rounds)
        return forward(self, *given, **named)

    monkeypatch.setattr(RecurrentStack, "forward", noting)
    settings = {"validation": {"every": 10}}
    straight = make_job("straight", model=MODEL, max_updates=20, **settings)
    run_training(straight, quiet=True)
    whole, seen[:] = list(seen), []
    assert len(set(whole)) > 3
    run_training(make_job("halved", model=MODEL, max_updates=10, **settings), quiet=True)
    halved = make_job("halved", model=MODEL, max_updates=20, **settings)
    run_training(halved, quiet=True)
    assert seen == whole
    assert read_records(halved.run) == read_records(straight.run)
    assert weights_digest(halved.run, 20) == weights_digest(straight.run, 20)
