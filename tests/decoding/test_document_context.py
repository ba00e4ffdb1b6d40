"""Translation and scoring of documents: what stands in front of a line, and what does not."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from deepwire.data.context import ContextConfig
from deepwire.data.languages import Direction, Languages
from deepwire.data.vocabulary import EOS, PAD
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.translation_io import Request
from deepwire.decoding.translator import Translator
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

PIECES = 12
SMALL = {"d_model": 16, "heads": 2, "feed_forward": 16}
LINES = ["abc", "hg", "aa", "", "cdef", "b", "bcd", "a", " ", "hgf", "dcb"]


@pytest.fixture(scope="module", params=["encoder_decoder", "decoder_only"])
def model(request: pytest.FixtureRequest):
    """One whose answers depend on all that it reads."""
    stacks = {"decoder": {"layers": 1}}
    if request.param == "encoder_decoder":
        stacks["encoder"] = {"layers": 1}
    torch.manual_seed(4)
    made = build_model(
        ModelConfig.model_validate({**SMALL, "architecture": request.param, **stacks}), PIECES + 1, PIECES + 1
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3)
    return made.double().eval()


def translator(toys, model, source: int, target: int, **settings: object) -> Translator:
    config = {"max_length_ratio": 1, "max_length_extra": 4, "beam": 2, **settings}
    return Translator(
        [model],
        toys.vocabularies(PIECES),
        DecodingConfig.model_validate(config),
        context=ContextConfig(source=source, target=target, max_length=100),
        warn=pytest.fail,
    )


@pytest.mark.parametrize(("source", "target"), [(2, 0), (1, 2)])
def test_lines_read_those_in_front_of_them_and_documents_do_not_mix(toys, model, source, target) -> None:
    tool = translator(toys, model, source, target)
    answers = list(tool.translations(LINES))
    assert [answer.line for answer in answers] == list(range(1, len(LINES) + 1))
    found = [answer.text for answer in answers]
    assert (found[3], found[8]) == ("", "")
    before: list[tuple[str, str]] = []
    for line, text in zip(LINES, found, strict=True):
        if not line.strip():
            before = []
            continue
        request = Request(line, context=tuple(before[-max(source, target) :]))
        (alone,) = tool.translations([request], documents=False)
        assert alone.text == text
        before.append((line, text))
    assert found != [tool.translate([line])[0] for line in LINES], "context must make a difference"
    # However many lines are read ahead, and whatever stands in other documents.
    for window in (1, 5):
        assert [answer.text for answer in tool.translations(LINES, window=window)] == found
    assert tool.translate(["hhh", "ab", "", *LINES[4:8]])[3:] == found[4:8]
    assert tool.translate(["\n".join(LINES)]) == ["\n".join(found)]
    begun = tool.translate(LINES, ["", "hh", *[""] * 9])
    assert begun[1].startswith("hh")
    assert (begun[0], begun[4:]) == (found[0], found[4:])


@pytest.mark.parametrize(("source", "target"), [(2, 0), (1, 2)])
def test_scores_are_those_that_translation_gives(toys, model, source, target) -> None:
    tool = translator(toys, model, source, target)
    answers = list(tool.translations(LINES))
    full = [answer for answer in answers if answer.text]
    pairs = [(line, answer.text) for line, answer in zip(LINES, answers, strict=True)]
    for window in (1, 100):
        scores = [score for score in tool.score(pairs, window=window) if score.flag is None]
        assert len(scores) == len(full)
        for score, answer in zip(scores, full, strict=True):
            assert score.log_probability == pytest.approx(answer.candidates[0].log_probability, abs=1e-4)
            assert len(score.token_log_probabilities) == len(score.tokens) + 1


@pytest.mark.parametrize("tag", ["source", "both"])
def test_languages_and_contexts_stand_side_by_side(toys, tag: Literal["source", "both"]) -> None:
    """Tags in front, separators behind the tags in the vocabulary."""
    languages = Languages(tuple(map(Direction.parse, ["en-de", "de-en", "en-fr", "fr-en"])), tag)
    torch.manual_seed(6)
    made = build_model(
        ModelConfig.model_validate({**SMALL, "encoder": {"layers": 1}, "decoder": {"layers": 1}}),
        *[PIECES + languages.tags + 1] * 2,
    )
    context = ContextConfig(source=1, target=1)
    tool = Translator(
        [made.double().eval()],
        toys.vocabularies(PIECES),
        DecodingConfig(max_length_ratio=1, max_length_extra=4, beam=2),
        languages=languages,
        context=context,
    )
    lines = ["abc", "hg", "", "aa", "cdef"]
    answers = list(tool.translations(lines, to="fr"))
    assert all(set(answer.text) <= set("abcdefgh⁇") for answer in answers)
    pairs = [(line, answer.text) for line, answer in zip(lines, answers, strict=True)]
    scores = [score.log_probability for score in tool.score(pairs, to="fr") if score.flag is None]
    expected = [answer.candidates[0].log_probability for answer in answers if answer.text]
    assert scores == pytest.approx(expected, abs=1e-4)


def test_a_separator_is_read_and_never_written(toys) -> None:
    """It is the entry behind the pieces; limits of the output count the line alone."""

    class Recorded(toys.Model):
        def __init__(self) -> None:
            super().__init__(size=PIECES + 1)
            self.seen: list[list[int]] = []
            self.prompts: list[list[int]] = []

        def start(self, source, *, languages=None, prompt=None):
            self.seen += [[int(one) for one in row if one != PAD] for row in source]
            self.prompts += [[]] * len(source) if prompt is None else prompt.tolist()
            return super().start(source)

        def step(self, tokens, state):
            log_probs, state = super().step(tokens, state)
            log_probs[:, PIECES] = 0.0
            return log_probs, state

    recorded = Recorded()
    tool = translator(toys, recorded, 1, 1, max_length_ratio=0, max_length_extra=1, min_length=1)
    first, second = tool.translations(["ab", "c"])
    assert recorded.seen == [[4, 5, EOS], [4, 5, PIECES, 6, EOS]]
    assert recorded.prompts == [[], [1, *toys.vocabularies(PIECES).target.encode(first.text)]]
    assert len(first.text) == len(second.text) == 1
