"""Small models, vocabularies and checkpoints for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from deepwire.checkpoint.model_files import write_tensors
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import OPTIMIZER, STATE, model_parameters, write_model_files
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

SHAPE = {
    "d_model": 8,
    "heads": 2,
    "feed_forward": 16,
    "encoder": {"layers": 1},
    "decoder": {"layers": 1},
}
ModelMaker = Callable[..., TranslationModel]
CheckpointMaker = Callable[..., Path]


@pytest.fixture(scope="session")
def vocabularies() -> Vocabularies:
    pairs = [Pair(line, "ein Haus am See", "a house by the lake", 0) for line in range(1, 4)]
    return Vocabularies.learn_from_blocks(WordsConfig(), [pairs])


@pytest.fixture
def make_model(vocabularies: Vocabularies) -> ModelMaker:
    def make(seed: int = 1, **shape: object) -> TranslationModel:
        torch.manual_seed(seed)
        config = ModelConfig.model_validate({**SHAPE, **shape})
        return build_model(config, vocabularies.source.size, vocabularies.target.size)

    return make


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


@pytest.fixture
def checkpoint(run: RunDirectory, make_model: ModelMaker, vocabularies: Vocabularies) -> CheckpointMaker:
    """Writes checkpoints: ``checkpoint(200, loss=3.1)``."""

    def make(
        update: int, *, metric: str = "loss", keep_last: int = 9, keep_best: int = 1, **scores: float
    ) -> Path:
        model = make_model(update)

        def write(folder: Path) -> None:
            write_model_files(folder, model, model_parameters(model), vocabularies, {"update": update})
            write_tensors(folder / OPTIMIZER, {"exp_avg.x": torch.zeros(3)})
            (folder / STATE).write_text(json.dumps({"update": update, "scores": scores}))

        return run.save(update, write, metric=metric, keep_last=keep_last, keep_best=keep_best)

    return make
