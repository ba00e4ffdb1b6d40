from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from deepwire.cli.main import main
from deepwire.lab.study.plan import StudyRun
from deepwire.lab.study.processes import Failure, NextRun

Train = Callable[[StudyRun], Failure | None]


@pytest.fixture(scope="session")
def one_by_one() -> Callable[[Train], Callable[..., Iterator[tuple[StudyRun, Failure | None]]]]:
    """What stands for `train_runs`: each run is trained by a function, in this process."""

    def standing_for(train: Train) -> Callable[..., Iterator[tuple[StudyRun, Failure | None]]]:
        def runs(next_run: NextRun, **_: object) -> Iterator[tuple[StudyRun, Failure | None]]:
            while (one := next_run()) is not None:
                yield one, train(one)

        return runs

    return standing_for


@pytest.fixture(scope="session")
def train_here() -> Train:
    """Trains a run without the seconds that a process of its own takes to start."""

    def train(one: StudyRun) -> Failure | None:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code = main(["train", one.base, *one.overrides, "--quiet"])
        torch.set_flush_denormal(False)
        return Failure(code, errors.getvalue().strip()) if code else None

    return train


PLAN = """
title: Small systems
about: Thirty updates teach little.
base: small.yaml
settings: [training.log_every=1, training.max_updates=4]
directions: {de-en: []}
seeds: [1, 2]
baseline: plain
search:
  max_updates: 2
  shorten_warmup: false
  settings: ["training.validation={every: 1}"]
  alternatives: {slow: [training.schedule.peak=1e-6]}
systems:
  plain:
    both: [connection=pre_norm]
  lstm:
    tuned_as: plain
  broken:
    settings:
      - "training.schedule={type: constant, peak: 1e30, warmup: 0}"
      - training.clip_norm=null
      - training.max_updates=20
    alternatives: {}
"""


@pytest.fixture(scope="session")
def plan(corpus: Path) -> Path:
    (corpus / "plan.yaml").write_text(PLAN)
    for language in ("de", "en"):
        lines = (corpus / f"train.{language}").read_text().splitlines(keepends=True)
        (corpus / f"later.{language}").write_text("".join(lines[:20]))
    return corpus / "plan.yaml"
