"""`decoding.groups`: from a run file, the command line and Python down to the model."""

from __future__ import annotations

import pytest
import torch

import deepwire
from deepwire.checkpoint.store import save_model
from deepwire.cli.main import main
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

SOURCES, TARGETS = ["ein hund", "zwei katzen hund"], ["a dog", "two cats dog"]
GROUPS = {"type": "groups", "size": 1}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model with three groups, one whose stored settings choose the second, and one without groups."""
    place = tmp_path_factory.mktemp("models")
    pairs = [Pair(line, *texts, 0) for line, texts in enumerate(zip(SOURCES, TARGETS, strict=True), 1)]
    vocabularies = Vocabularies.learn(WordsConfig(), pairs)
    limits = {"max_length_ratio": 1, "max_length_extra": 3}
    for name, fusion, groups in (("gtrans", GROUPS, None), ("second", GROUPS, "2"), ("plain", "top", None)):
        torch.manual_seed(1)
        stacks = {"encoder": {"layers": 1}, "decoder": {"layers": 3, "fusion": fusion}}
        config = ModelConfig.model_validate({"d_model": 16, "heads": 2, "feed_forward": 32, **stacks})
        model = build_model(config, vocabularies.source.size, vocabularies.target.size)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        save_model(place / name, model, vocabularies, {"decoding": {**limits, "groups": groups}})
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
    """The stored settings hold unless the caller has others; scores differ between ranges."""
    every = scores(folders / "gtrans")
    assert scores(folders / "gtrans", groups="1:3") == every
    second = scores(folders / "gtrans", groups=2)
    assert second != every
    assert scores(folders / "second") == second
    assert scores(folders / "second", groups=None) == every
    assert scores(folders / "second", groups="3") == scores(folders / "gtrans", groups="3") != second


def test_models_that_do_not_have_the_groups(folders):
    with pytest.raises(UsageError, match=r"^groups 2:4: the decoder has 3 groups, counted from 1$"):
        deepwire.load(folders / "gtrans", settings={"groups": "2:4"})
    with pytest.raises(
        UsageError, match=r"^groups 1: the decoder does not predict with a mixture of groups$"
    ):
        deepwire.load(folders / "plain", settings={"groups": 1})
    with pytest.raises(UsageError, match=r"^groups 1, model 2: the decoder does not predict"):
        deepwire.load([folders / "gtrans", folders / "plain"], settings={"groups": 1})


def run(capsys, *arguments):
    code = main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    return code, out, err


def test_the_option_of_the_commands(folders, tmp_path, monkeypatch, capsys):
    for name, lines in (("s", SOURCES), ("t", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    source, target = tmp_path / "s", tmp_path / "t"
    score = ("score", folders / "gtrans", "--source", source, "--target", target, "--precision", "fp32")
    _, out, _ = run(capsys, *score, "groups=2")
    assert [float(line) for line in out.split()] == pytest.approx(scores(folders / "second"), abs=1e-4)
    translate = ("translate", "--input", source, "--beam", "2", "--quiet", "--precision", "fp32")
    _, expected, _ = run(capsys, *translate, folders / "second")
    code, out, _ = run(capsys, *translate, folders / "gtrans", "groups=2")
    assert (code, out) == (0, expected)
    evaluate = ("evaluate", "--source", source, "--reference", target, "--output", tmp_path / "o")
    model = ("--model", folders / "gtrans", "--beam", "2", "--precision", "fp32")
    code, _, _ = run(capsys, *evaluate, *model, "groups=2")
    assert (code, (tmp_path / "o").read_text()) == (0, expected)
