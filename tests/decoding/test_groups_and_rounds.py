"""`decoding.groups` and `decoding.rounds`: parts of the decoder; how often the encoder runs its middle."""

from __future__ import annotations

import pytest
import torch

import deepwire
from deepwire.checkpoint.store import save_model
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

SOURCES, TARGETS = ["ein hund", "zwei katzen hund"], ["a dog", "two cats dog"]
Settings = dict[str, object]
GTRANS: Settings = {
    "encoder": {"layers": 1},
    "decoder": {"layers": 3, "fusion": {"type": "groups", "size": 1}},
}
ROUNDS: Settings = {
    "encoder": {"layers": 2, "recurrence": {"prelude": 1, "coda": 0, "rounds": 2}},
    "decoder": {"layers": 1},
}
MODELS: dict[str, tuple[Settings, Settings]] = {
    "gtrans": (GTRANS, {}),
    "second": (GTRANS, {"groups": "2"}),
    "two": (ROUNDS, {}),
    "five": (ROUNDS, {"rounds": 5}),
    "plain": ({"encoder": {"layers": 1}, "decoder": {"layers": 1}}, {}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models with three groups and with rounds, some with stored settings, and one without either."""
    place = tmp_path_factory.mktemp("models")
    pairs = [Pair(line, *texts, 0) for line, texts in enumerate(zip(SOURCES, TARGETS, strict=True), 1)]
    vocabularies = Vocabularies.learn_from_blocks(WordsConfig(), [pairs])
    for name, (stacks, decoding) in MODELS.items():
        torch.manual_seed(1)
        config = ModelConfig.model_validate({"d_model": 16, "heads": 2, "feed_forward": 32, **stacks})
        model = build_model(config, vocabularies.source.size, vocabularies.target.size)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        save_model(place / name, model, vocabularies, {"decoding": decoding})
    return place


def scores(folder, **settings):
    translator = deepwire.load(folder, precision="fp32", settings=settings)
    return [score.log_probability for score in translator.score(zip(SOURCES, TARGETS, strict=True))]


@pytest.mark.parametrize(
    ("written", "expected"), [("3:6", (3, 6)), ("4", (4, 4)), (4, (4, 4)), ("2:2", (2, 2)), (None, None)]
)
def test_ranges(written, expected):
    config = DecodingConfig(groups=written)
    assert config.group_range == expected
    assert DecodingConfig.model_validate(config.model_dump(mode="json")) == config


def test_settings_reach_the_model(folders):
    """The stored settings hold unless the caller has others; scores differ between ranges and rounds."""
    every, second = scores(folders / "gtrans"), scores(folders / "gtrans", groups=2)
    assert scores(folders / "gtrans", groups="1:3") == every != second
    assert scores(folders / "second") == second
    assert scores(folders / "second", groups=None) == every
    assert scores(folders / "second", groups="3") == scores(folders / "gtrans", groups="3") != second
    two, five = scores(folders / "two"), scores(folders / "five")
    assert scores(folders / "two", rounds=5) == five != two
    assert scores(folders / "two", rounds=2) == scores(folders / "five", rounds=None) == two


@pytest.mark.parametrize(
    ("names", "settings", "said"),
    [
        (["gtrans"], {"groups": "2:4"}, r"^groups 2:4: the decoder has 3 groups, counted from 1$"),
        (["plain"], {"groups": 1}, r"^groups 1: the decoder does not predict with a mixture of groups$"),
        (["gtrans", "plain"], {"groups": 1}, r"^groups 1, model 2: the decoder does not predict"),
        (["plain"], {"rounds": 3}, r"^rounds 3: the encoder has no rounds \(model"),
        (["two", "plain"], {"rounds": 3}, r"^rounds 3, model 2: the encoder has no rounds"),
    ],
)
def test_models_that_do_not_have_them_are_refused(folders, names, settings, said):
    with pytest.raises(UsageError, match=said):
        deepwire.load([folders / name for name in names], settings=settings)
