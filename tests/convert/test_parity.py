"""What counts as the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from untrained_models import save_untrained, vocabularies_of

from deepwire.checkpoint.store import LoadedModel, load_model
from deepwire.convert.export_format import ExportedModel, ids_of_pieces
from deepwire.convert.parity import SAME, Parity, compare, in_float64
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.translator import Translator

Text = Mapping[str, Sequence[str]]
LINES = 8


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
    """It is measured where the usual limit is passed."""
    lines = multi30k["de"][:LINES]
    found = compare(loaded, InFloat64(loaded), lines)
    assert found.rounding is not None
    assert SAME < found.largest_difference == pytest.approx(found.rounding, rel=0.01)
    assert found.fault(0.01, same=True) is None
    worse = compare(loaded, InFloat64(loaded, 12 * found.rounding), lines)
    assert worse.rounding == found.rounding
    assert "at most" in (worse.fault(0.1, same=True) or "")
    assert worse.fault(0.1, same=False) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"mean_difference": float("nan")}, "allowed is 0.001 on average"),
        ({"largest_difference": 2e-4}, "allowed is 0.0001 at most"),
        ({"largest_difference": 2e-4, "rounding": 2.1e-5}, ""),
        ({"largest_difference": 2e-4, "rounding": 1.9e-5}, "allowed is 0.00019 at most"),
        ({"equal": 0.94}, "95% of the lines must be translated alike"),
        ({"beam_equal": 0.94}, "95% of the lines must be translated alike"),
    ],
)
def test_what_differs_too_much(change: Mapping[str, Any], said: str) -> None:
    usual: dict[str, Any] = {
        "equal": 0.99,
        "beam_equal": 1.0,
        "mean_difference": 1e-6,
        "largest_difference": 1e-5,
    }
    parity = Parity(lines=100, **{**usual, **change})
    assert (parity.fault(0.001, same=True) or "") == said
    assert parity.fault(1, same=False) is None or "mean_difference" in change
