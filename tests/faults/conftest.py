"""A toy run that all tests of this folder are measured against."""

from __future__ import annotations

import pytest
from one_process import Trainer


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """Trains in forked processes; its run `straight` was never disturbed."""
    trainer = Trainer(tmp_path_factory.mktemp("faults"))
    assert trainer.train("straight") == 0, trainer.text()
    return trainer
