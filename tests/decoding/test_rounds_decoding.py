"""`decoding.rounds`: from a run file, the command line and Python down to the encoder."""

from __future__ import annotations

import pytest
import torch

import deepwire
from deepwire.checkpoint.store import save_model
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

SOURCES, TARGETS = ["ein hund", "zwei katzen hund"], ["a dog", "two cats dog"]
RECURRENCE = {"prelude": 1, "coda": 0, "rounds": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model with rounds, one whose stored settings choose five, and one without."""
    place = tmp_path_factory.mktemp("models")
    pairs = [Pair(line, *texts, 0) for line, texts in enumerate(zip(SOURCES, TARGETS, strict=True), 1)]
    vocabularies = Vocabularies.learn(WordsConfig(), pairs)
    models = {"two": (RECURRENCE, None), "five": (RECURRENCE, 5), "plain": (None, None)}
    for name, (recurrence, rounds) in models.items():
        torch.manual_seed(1)
        stacks = {"encoder": {"layers": 2, "recurrence": recurrence}, "decoder": {"layers": 1}}
        config = ModelConfig.model_validate({"d_model": 16, "heads": 2, "feed_forward": 32, **stacks})
        model = build_model(config, vocabularies.source.size, vocabularies.target.size)
        save_model(place / name, model, vocabularies, {"decoding": {"rounds": rounds}})
    return place


def scores(folder, **settings):
    translator = deepwire.load(folder, precision="fp32", settings=settings)
    return [score.log_probability for score in translator.score(zip(SOURCES, TARGETS, strict=True))]


def test_settings_reach_the_encoder(folders):
    """The stored number holds unless the caller has another one."""
    two, five = scores(folders / "two"), scores(folders / "five")
    assert two != five
    assert scores(folders / "two", rounds=5) == five
    assert scores(folders / "two", rounds=2) == two
    assert scores(folders / "five", rounds=None) == two


def test_a_model_without_rounds_refuses_them(folders):
    with pytest.raises(UsageError, match=r"^rounds 3: the encoder has no rounds \(model"):
        deepwire.load(folders / "plain", settings={"rounds": 3})
    with pytest.raises(UsageError, match=r"^rounds 3, model 2: the encoder has no rounds"):
        deepwire.load([folders / "two", folders / "plain"], settings={"rounds": 3})
