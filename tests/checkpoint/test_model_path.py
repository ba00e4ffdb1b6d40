from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepwire.checkpoint.model_files import write_manifest, write_tensors
from deepwire.checkpoint.model_path import average_models, find_model
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import WEIGHTS, load_model, save_model
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.errors import ModelError
from deepwire.model.translation_model import TranslationModel

CheckpointMaker = Callable[..., Path]
ModelMaker = Callable[..., TranslationModel]


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value.detach() for name, value in load_model(folder).model.named_parameters()}


def test_an_average_is_the_mean_rounded_once(tmp_path: Path, checkpoint: CheckpointMaker) -> None:
    folders = [checkpoint(update) for update in (100, 200, 300)]
    average_models(folders, tmp_path / "mean")
    found, each = parameters(tmp_path / "mean"), [parameters(folder) for folder in folders]
    for name, value in found.items():
        expected = torch.stack([one[name].double() for one in each]).mean(0).float()
        torch.testing.assert_close(value, expected, rtol=1.2e-7, atol=0)
    metadata = load_model(tmp_path / "mean").metadata
    assert metadata["average_of"] == ["update-000100", "update-000200", "update-000300"]


def test_models_that_differ_are_refused(
    tmp_path: Path, make_model: ModelMaker, vocabularies: Vocabularies, checkpoint: CheckpointMaker
) -> None:
    save_model(tmp_path / "other", make_model(feed_forward=32), vocabularies, {})
    with pytest.raises(ModelError, match="cannot be averaged"):
        average_models([tmp_path / "other", checkpoint(100)], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_models_of_the_same_sizes_with_other_words_or_languages_are_refused(
    tmp_path: Path, make_model: ModelMaker, vocabularies: Vocabularies
) -> None:
    pairs = [Pair(line, "ein Haus am Meer", "a house by the ocean", 0) for line in range(1, 4)]
    others = Vocabularies.learn_from_blocks(WordsConfig(), [pairs])
    folders = {name: tmp_path / name for name in ("model", "words", "languages")}
    save_model(folders["model"], make_model(), vocabularies, {"languages": ["de", "en"]})
    save_model(folders["words"], make_model(), others, {"languages": ["de", "en"]})
    save_model(folders["languages"], make_model(), vocabularies, {"languages": ["en", "de"]})
    for name, what in (("words", "different vocabularies"), ("languages", "different languages")):
        with pytest.raises(ModelError, match=f"{name} and .*model cannot be averaged: they have {what}"):
            average_models([folders[name], folders["model"]], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_a_checkpoint_that_diverged_is_not_averaged(tmp_path: Path, checkpoint: CheckpointMaker) -> None:
    folders = [checkpoint(100), checkpoint(200)]
    weights = load_file(folders[1] / WEIGHTS)
    next(iter(weights.values())).fill_(math.nan)
    write_tensors(folders[1] / WEIGHTS, weights)
    write_manifest(folders[1])
    with pytest.raises(ModelError, match="NaN or infinity"):
        average_models(folders, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_names_of_a_run(run: RunDirectory, checkpoint: CheckpointMaker) -> None:
    for update, loss in ((100, 3.0), (200, 2.0), (300, 2.5)):
        checkpoint(update, loss=loss)
    name = str(run.path)
    assert find_model(name) == find_model(f"{name}@best") == run.checkpoint_path(200)
    assert find_model(f"{name}@last") == run.checkpoint_path(300)
    assert find_model(f"{name}@update-100") == find_model(f"{name}@update-000100") == run.checkpoint_path(100)
    assert find_model(str(run.checkpoint_path(100))) == run.checkpoint_path(100)


def test_an_average_is_made_once_and_again_when_the_run_went_on(
    run: RunDirectory, checkpoint: CheckpointMaker
) -> None:
    for update in (100, 200):
        checkpoint(update)
    name = f"{run.path}@avg2"
    first = find_model(name)
    assert first == run.averages / "avg2"
    made = (first / "model.safetensors").stat().st_ino
    assert find_model(name) == first
    assert (first / "model.safetensors").stat().st_ino == made
    checkpoint(300)
    assert (find_model(name) / "model.safetensors").stat().st_ino != made
    assert load_model(first).metadata["average_of"] == ["update-000200", "update-000300"]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("@update-7", "no checkpoint at update 7"),
        ("@avg3", "has 2 checkpoints"),
        ("@avg0", "no such choice @avg0"),
        ("@newest", "no such choice @newest"),
        ("@", "no such choice @"),
    ],
)
def test_choices_that_are_not_there_are_named(
    run: RunDirectory, checkpoint: CheckpointMaker, choice: str, message: str
) -> None:
    for update in (100, 200):
        checkpoint(update)
    with pytest.raises(ModelError, match=message) as caught:
        find_model(f"{run.path}{choice}")
    assert caught.value.hint
