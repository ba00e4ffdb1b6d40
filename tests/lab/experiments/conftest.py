from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from deepwire.cli.main import main
from deepwire.lab.experiments.results.planned_runs import RunPlan
from deepwire.lab.experiments.results.run_processes import Failure, NextRun

sys.path.insert(0, str(Path(__file__).parents[1]))
from small_runs import corpus, make_model, run, store, text  # noqa: F401 - fixtures

Train = Callable[[RunPlan], Failure | None]


@pytest.fixture(scope="session")
def one_by_one() -> Callable[[Train], Callable[..., Iterator[tuple[RunPlan, Failure | None]]]]:
    """What stands for `train_runs`: each run is trained by a function, in this process."""

    def standing_for(train: Train) -> Callable[..., Iterator[tuple[RunPlan, Failure | None]]]:
        def runs(next_run: NextRun, **_: object) -> Iterator[tuple[RunPlan, Failure | None]]:
            while (one := next_run()) is not None:
                yield one, train(one)

        return runs

    return standing_for


@pytest.fixture(scope="session")
def train_here() -> Train:
    """Trains a run without the seconds that a process of its own takes to start."""

    def train(one: RunPlan) -> Failure | None:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code = main(["train", one.base, *one.overrides, "--quiet"])
        torch.set_flush_denormal(False)
        return Failure(code, errors.getvalue().strip()) if code else None

    return train
