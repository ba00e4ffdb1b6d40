"""A toy run that all tests of this folder are measured against."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Makes `one_process`, `job_of_processes` and `permissions` importable.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(TESTS / "training"), str(TESTS / "checkpoint")]

from one_process import Trainer  # noqa: E402


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """Trains in forked processes; its run `straight` was never disturbed."""
    trainer = Trainer(tmp_path_factory.mktemp("faults"))
    assert trainer.train("straight") == 0, trainer.text()
    return trainer
