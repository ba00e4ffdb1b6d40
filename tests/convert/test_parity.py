"""What counts as the same: rounding of the model itself, and ties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from untrained_models import save_untrained, vocabularies_of

from deepwire.checkpoint.store import LoadedModel, load_model
from deepwire.convert.export_format import ExportedModel, ids_of_pieces
from deepwire.convert.parity import SAME, ParityLimits, compare, in_float64, make_mismatch
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.translator import Translator

Text = Mapping[str, Sequence[str]]
LINES, LIMITS = 20, ParityLimits(0.01, same=True)


@pytest.fixture(autouse=True, scope="module")
def short_comparisons() -> None:
    """Not here: errors grow with the length."""


@pytest.fixture(scope="module")
def loaded(multi30k: Text, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model that makes much of rounding: EM routing divides by variances near its 1e-8."""
    routing = {"type": "em_routing", "capsules": 4, "output": "mean", "norm": False}
    sizes = {"d_model": 16, "heads": 4, "feed_forward": 16}
    config = {**sizes, "encoder": {"layers": 2}, "decoder": {"layers": 2, "fusion": routing}}
    folder = save_untrained(
        tmp_path_factory.mktemp("model"),
        vocabularies_of(multi30k),
        config,
        {"source": "de", "target": "en"},
        noise=0.1,
        seed=5,
        never=(PAD, BOS, UNK),
        likely={EOS: 2},
    )
    return load_model(folder)


class InFloat64(ExportedModel):
    """A model as exact as can be, or with an error added to every log-probability."""

    def __init__(self, loaded: LoadedModel, error: float = 0.0) -> None:
        self.loaded, self.error = loaded, error

    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> list[list[str]]:
        texts = self.texts(self.loaded.vocabularies.source, sources)
        with in_float64(self.loaded.model) as model:
            translator = Translator([model], self.loaded.vocabularies, config)
            return [list(each.candidates[0].tokens) for each in translator.translations(texts)]

    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        source, target = map(ids_of_pieces, self.loaded.vocabularies.sides.values())
        scores = []
        with in_float64(self.loaded.model) as model, torch.no_grad():
            for read, written in zip(sources, targets, strict=True):
                ids = [target[piece] for piece in written]
                texts = [[*(source[piece] for piece in read), EOS]], [[BOS, *ids]]
                log_probs = model.log_probs(*map(torch.tensor, texts))
                found = log_probs[0].gather(1, torch.tensor([[*ids, EOS]]).t())[:, 0]
                scores.append((found + self.error).tolist())
        return scores

    def texts(self, vocabulary: Vocabulary, segmented: Sequence[Sequence[str]]) -> list[str]:
        numbers = ids_of_pieces(vocabulary)
        return [vocabulary.decode(numbers[piece] for piece in pieces) for pieces in segmented]


def test_a_model_may_differ_by_its_own_rounding(loaded: LoadedModel, multi30k: Text) -> None:
    """It is measured, said and stored where the usual limit is passed, and nowhere else."""
    lines = multi30k["de"][:LINES]
    found = compare(loaded, InFloat64(loaded), lines, limits=LIMITS)
    assert found.rounding is not None
    assert SAME < found.largest_difference == pytest.approx(found.rounding, rel=0.01)
    assert found.violations(LIMITS) == []
    assert f"our own float32 errs by {found.rounding:.2g}" in str(found)
    assert found.to_json()["rounding"] == found.rounding
    worse = compare(loaded, InFloat64(loaded, 12 * found.rounding), lines, limits=LIMITS)
    assert worse.rounding == found.rounding
    assert any("10 times the model's own rounding" in fault for fault in worse.violations(LIMITS))
    loose = ParityLimits(0.01, same=True, largest=0.1)
    assert compare(loaded, InFloat64(loaded), lines, limits=loose).rounding is None


def test_a_greedy_tie_is_at_the_first_subword_that_is_another_one() -> None:
    """What follows it is another text, whose scores mean nothing."""
    greedy = DecodingConfig(beam=1, length_penalty=0)
    texts = (["a", "b", "c"], ["a", "d"])
    near = make_mismatch(1, texts, ([-1, -2, -1, -1], [-1, -2.001, -9]), greedy)
    assert near.is_tie(0.0006)
    assert not near.is_tie(0.0004)
    # One of them has ended.
    ended = make_mismatch(1, (["a"], ["a", "b"]), ([-1, -3], [-1, -3.001, -4]), greedy)
    assert ended.is_tie(0.0006)
    assert not ended.is_tie(0.0004)


def test_a_tie_of_beams_is_of_whole_scores() -> None:
    """A score has the difference of every subword, divided as the score is."""
    texts = (["a", "b", "c"], ["a", "d"])
    log_probs = ([-1.0, -2.0, -1.0, -1.0], [-1.0, -3.0, -1.0])
    summed = make_mismatch(1, texts, log_probs, DecodingConfig(beam=4, length_penalty=0))
    assert (summed.gap, summed.counted) == (0, 7)
    mean = DecodingConfig(beam=4, length_penalty=1, length_penalty_form="average")
    averaged = make_mismatch(1, texts, log_probs, mean)
    assert averaged.gap == pytest.approx(-5 / 4 + 5 / 3)
    assert averaged.counted == 2
    assert averaged.is_tie(0.21)
    assert not averaged.is_tie(0.2)
