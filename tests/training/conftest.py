"""A toy task (reverse the words) and jobs on it that train in about a second."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from toy_run import FinishedRun, JobMaker, RunTwice, run_training

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.data.data_config import DataConfig
from deepwire.data.prepare.prepared import Prepared, prepare
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.training.config import TrainingConfig
from deepwire.training.spec import TrainingSpec
from deepwire.training.start_from import start_from

WORDS = [letter * count for letter in "abcdefgh" for count in (1, 2)]
MODEL = {
    "d_model": 16,
    "heads": 2,
    "feed_forward": 32,
    "dropout": 0.1,
    "encoder": {"layers": 1},
    "decoder": {"layers": 1},
}
TRAINING = {
    "max_updates": 30,
    "batch_tokens": 200,
    "log_every": 5,
    "schedule": {"type": "inverse_sqrt", "peak": 0.01, "warmup": 10},
    "validation": {"every": 10},
    "device": "cpu",
    "precision": "fp32",
}


def write_text(folder: Path, name: str, count: int, seed: int) -> None:
    generator = random.Random(seed)
    lines = [[generator.choice(WORDS) for _ in range(generator.randint(2, 8))] for _ in range(count)]
    (folder / f"{name}.src").write_text("".join(" ".join(words) + "\n" for words in lines))
    (folder / f"{name}.trg").write_text("".join(" ".join(words[::-1]) + "\n" for words in lines))


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("toy")
    write_text(folder, "train", 400, 1)
    write_text(folder, "valid", 40, 2)
    config = DataConfig.model_validate(
        {
            "source": "src",
            "target": "trg",
            "train": str(folder / "train"),
            "valid": str(folder / "valid"),
            "vocabulary": {"type": "words"},
            "prepared": str(folder / "prepared"),
        }
    )
    return prepare(config, seed=1)


@pytest.fixture
def make_job(prepared: Prepared, tmp_path: Path) -> JobMaker:
    """Makes jobs: ``make_job("name", seed=1, model={...}, **training)``."""

    def make(
        name: str = "run", *, seed: int = 1, model: dict[str, object] | None = None, **training: Any
    ) -> TrainingSpec:
        merged: dict[str, Any] = dict(TRAINING)
        for key, value in training.items():
            before = merged.get(key)
            if isinstance(before, dict) and isinstance(value, dict) and key != "schedule":
                value = {**before, **value}
            merged[key] = value
        config = TrainingConfig.model_validate(merged)
        shape = ModelConfig.model_validate({**MODEL, **(model or {})})
        words = prepared.vocabularies
        begin = None
        if config.start_from is not None:
            begin = partial(start_from, config.start_from, vocabularies=words, source_bos=False)
        return TrainingSpec(
            run=RunDirectory(tmp_path / name),
            config=config,
            seed=seed,
            resolved={
                "seed": seed,
                "model": shape.model_dump(mode="json"),
                "training": config.model_dump(mode="json"),
            },
            build=lambda: build_model(shape, words.source.size, words.target.size),
            prepared=prepared,
            begin=begin,
            metadata={"source": "src", "target": "trg"},
        )

    return make


@pytest.fixture
def run_whole_and_halved(make_job: JobMaker) -> RunTwice:
    """Runs a job at once, and again with a stop in the middle.

    ``run_whole_and_halved(20, model={...}, **training)`` gives both, which must be equal to the last bit.
    """

    def run(updates: int, **settings: Any) -> tuple[FinishedRun, FinishedRun]:
        for name, limits in (("whole", [updates]), ("halved", [updates // 2, updates])):
            for limit in limits:
                run_training(make_job(name, max_updates=limit, **settings), quiet=True)
        whole, halved = (FinishedRun.of(make_job(name).run, updates) for name in ("whole", "halved"))
        return whole, halved

    return run
