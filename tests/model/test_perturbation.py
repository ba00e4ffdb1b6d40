"""Which tokens are cut, unknown or replaced, how often, and what an embedding makes of them."""

from __future__ import annotations

import pytest
import torch

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.perturbation import (
    InputNoiseConfig,
    NoiseConfig,
    Perturbation,
    SimCutConfig,
    Words,
    disturbed,
)
from deepwire.model.translation_model import TranslationModel

WORDS = Words(unknown=3, stop=50)
SHAPE = {"d_model": 8, "heads": 2, "feed_forward": 8, "encoder": {"layers": 1}, "decoder": {"layers": 1}}


def rows_with_symbols() -> torch.Tensor:
    """BOS, a tag (50 or more), words, EOS, padding."""
    torch.manual_seed(1)
    rows = torch.randint(3, 50, (200, 40))
    rows[:, 0], rows[:, 1], rows[:, -2], rows[:, -1] = 1, 51, 2, 0
    return rows


def small_model(**settings: object) -> TranslationModel:
    torch.manual_seed(1)
    return build_model(ModelConfig.model_validate({**SHAPE, "dropout": 0, **settings}), 12, 12).train()


def test_each_kind_of_noise_is_as_frequent_as_asked_for() -> None:
    rows = rows_with_symbols()
    read = disturbed(rows, WORDS, NoiseConfig(cutoff=0.1, unknown=0.2, replace=0.3))
    assert read.cut is not None
    words = rows[:, 2:-2].numel()
    unknown = (read.tokens == 3) & (rows != 3)
    replaced = (read.tokens != rows) & ~unknown
    for found, wanted in ((read.cut, 0.1), (unknown, 0.2), (replaced, 0.3)):
        assert int(found.sum()) / words == pytest.approx(wanted, abs=0.03)
        assert not found[:, [0, 1, -2, -1]].any()
    assert not (read.cut & (read.tokens != rows)).any()
    assert (int(read.tokens[replaced].min()), int(read.tokens[replaced].max())) == (4, 49)


def test_without_noise_nothing_is_drawn() -> None:
    rows = rows_with_symbols()
    state = torch.get_rng_state()
    read = disturbed(rows, WORDS, NoiseConfig())
    assert read.tokens is rows
    assert read.cut is None
    assert torch.equal(torch.get_rng_state(), state)


def test_sim_cut_cuts_words_of_the_second_pass_alone() -> None:
    rows = rows_with_symbols()
    perturbation = Perturbation(WORDS, WORDS, sim_cut=SimCutConfig(p_cut=0.2))
    for read in perturbation.draw(rows, rows):
        assert torch.equal(read.tokens, rows)
        assert read.cut is not None
        assert not read.cut[:100].any()
        assert not read.cut[:, [0, 1, -2, -1]].any()
        assert int(read.cut.sum()) / rows[100:, 2:-2].numel() == pytest.approx(0.2, abs=0.03)


def test_both_passes_of_sim_cut_have_noise_of_their_own() -> None:
    rows = rows_with_symbols().repeat(2, 1)
    noise = InputNoiseConfig(source=NoiseConfig(cutoff=0.3))
    source, target = Perturbation(WORDS, WORDS, noise, SimCutConfig(p_cut=0.2)).draw(rows, rows)
    assert source.cut is not None
    assert target.cut is not None
    shares = [float(half[:, 2:-2].float().mean()) for half in source.cut.chunk(2)]
    assert shares == pytest.approx([0.3, 0.3 + 0.7 * 0.2], abs=0.02)
    assert not target.cut[:200].any()


@pytest.mark.parametrize("norm", [False, True])
def test_a_cut_token_is_its_position_alone(norm: bool) -> None:
    model = small_model(embeddings={"tie": "all", "norm": norm})
    embedding, tokens = model.source_embedding, torch.tensor([[5, 6, 7]])
    cut = torch.tensor([[False, True, False]])
    plain, found = embedding(tokens), embedding(tokens, cut=cut)
    torch.testing.assert_close(found[:, [0, 2]], plain[:, [0, 2]])
    vector = embedding.vectors(1, 1)
    assert vector is not None
    torch.testing.assert_close(
        found[0, 1], vector[0] if embedding.norm is None else embedding.norm(vector[0])
    )
    found[0, 1].sum().backward()
    assert not embedding.table.weight.grad[6].any()


def test_padding_and_words_to_predict_stay_with_noise() -> None:
    """All words of both sides cut: the loss depends on lengths alone, and on every word to be predicted."""
    model = small_model()
    side = NoiseConfig(cutoff=1 - 1e-9)
    noise = Perturbation(Words(3, 12), Words(3, 12), InputNoiseConfig(source=side, target=side))

    def loss(source: list[int], target: list[int], output: list[int]) -> float:
        read, seen, wanted = (torch.tensor([row]) for row in (source, target, output))
        return float(model.loss(read, seen, wanted, perturbation=noise).smoothed.detach())

    usual = loss([5, 6, 2], [1, 7, 8], [7, 8, 2])
    assert loss([9, 4, 2], [1, 4, 4], [7, 8, 2]) == pytest.approx(usual)
    assert loss([9, 4, 2, 0], [1, 4, 4], [7, 8, 2]) == pytest.approx(usual)
    assert loss([9, 4, 6, 2], [1, 4, 4], [7, 8, 2]) != pytest.approx(usual)
    assert loss([5, 6, 2], [1, 7, 8], [9, 8, 2]) != pytest.approx(usual)


def test_sim_cut_is_the_loss_of_two_passes() -> None:
    model = small_model()
    perturbation = Perturbation(Words(3, 12), Words(3, 12), sim_cut=SimCutConfig(alpha=4.0, p_cut=0.3))
    source, target = torch.randint(3, 12, (3, 6)), torch.randint(3, 12, (3, 5))
    torch.manual_seed(2)
    sums = model.loss(source, target, target, 0.1, "uniform", perturbation=perturbation)
    torch.manual_seed(2)
    read, decoded = perturbation.draw(source.repeat(2, 1), target.repeat(2, 1))
    results = model._decode(source.repeat(2, 1), None, read, decoded)
    plain, cut = model.head.log_probs(results).view(2, 15, 12)
    divergence = (plain.exp() * (plain - cut)).sum()
    assert float(divergence.detach()) > 0.01
    wanted = model.loss(source, target, target, 0.1, "uniform")
    torch.testing.assert_close(sums.smoothed, wanted.smoothed + 4.0 * divergence)
    torch.testing.assert_close(sums.nll, wanted.nll)
    torch.testing.assert_close(sums.divergence, divergence.detach())


def test_r_drop_and_sim_cut_together_are_refused() -> None:
    perturbation = Perturbation(WORDS, WORDS, sim_cut=SimCutConfig())
    rows = torch.tensor([[5, 2]])
    with pytest.raises(ValueError, match="R-Drop and SimCut exclude each other"):
        small_model().loss(rows, rows, rows, r_drop=1.0, perturbation=perturbation)
