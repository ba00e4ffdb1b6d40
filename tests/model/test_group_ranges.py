"""Prediction with some groups of a decoder, and what a stack leaves out above the highest layer it needs."""

from __future__ import annotations

import pytest
import torch

from deepwire.model.context import Context
from deepwire.testing import small_model

GROUPS = {"type": "groups", "size": 2}
SOURCE, TARGET = torch.tensor([[4, 9, 5, 2], [8, 2, 0, 0]]), torch.tensor([[1, 5, 9], [1, 6, 7]])


def gtrans(connection="post_norm", **fusion):
    """Five decoder layers in groups of 2, 2 and 1."""
    return small_model(
        {
            "encoder": {"layers": 2, "connection": connection, "fusion": {"type": "groups", "size": 1}},
            "decoder": {"layers": 5, "connection": connection, "fusion": {**GROUPS, **fusion}},
        }
    )


representations = pytest.mark.parametrize("representation", ["last", "sum", "mean"])
probabilities = pytest.mark.parametrize("probabilities", ["arithmetic", "geometric"])


@torch.no_grad()
def parts(model):
    """Log-probabilities of each group by itself `[G, B, T, V]`, and the weights psi `[G]`."""
    results = model.decode(SOURCE, TARGET)
    alone = [(result @ model.head.table.weight.T + model.head.bias).log_softmax(-1) for result in results]
    return torch.stack(alone), (model.decoder.fusion.weights / 16**0.5).softmax(0)


@probabilities
@pytest.mark.parametrize(
    ("representation", "first", "last"),
    [
        *(("sum", first, last) for first in (1, 2, 3) for last in (1, 2, 3) if first <= last),
        ("last", 2, 3),
        ("mean", 2, 3),
    ],
)
def test_mixture_of_a_range(representation, probabilities, first, last):
    """Of probabilities whose mass is 1, or of log-probabilities."""
    model = gtrans(representation=representation, probabilities=probabilities)
    alone, psi = (each[first - 1 : last] for each in parts(model))
    with torch.no_grad():
        found = model.restrict(first, last).log_probs(SOURCE, TARGET)
    if probabilities == "geometric":
        expected = (psi[:, None, None, None] * alone).sum(0) / psi.sum()
        assert (found - expected).abs().max() < 2e-6
    else:
        expected = (psi[:, None, None, None] * alone.exp()).sum(0) / psi.sum()
        assert (found.exp() - expected).abs().max() < 1e-6
        assert (found.exp().sum(-1) - 1).abs().max() < 1e-5


@probabilities
@representations
def test_all_groups_are_the_whole_model(representation, probabilities):
    model = gtrans(representation=representation, probabilities=probabilities)
    with torch.no_grad():
        whole = model.log_probs(SOURCE, TARGET)
        assert torch.equal(model.restrict(1, 3).log_probs(SOURCE, TARGET), whole)
        model.restrict(2, 2)
        assert torch.equal(model.log_probs(SOURCE, TARGET), whole), "the model itself has changed"


@pytest.mark.parametrize(("last", "layers"), [(1, 2), (2, 4), (3, 5)])
def test_layers_above_the_last_group_are_not_evaluated(last, layers):
    model = gtrans()
    restricted = model.restrict(1, last)
    used = set()
    for kind in ("mixers", "crosses", "feed_forwards"):
        for layer, module in enumerate(getattr(model.decoder, kind)):
            module.output.register_forward_pre_hook(lambda *_, layer=layer: used.add(layer))
    with torch.no_grad():
        restricted.log_probs(SOURCE, TARGET)
        assert used == set(range(layers))
        used.clear()
        state = restricted.start(SOURCE)
        assert len(state.context.memory) == len(state.states) == layers
        restricted.step(TARGET[:, 0], state)
    assert used == set(range(layers))


@pytest.mark.parametrize(("first", "last"), [(0, 1), (3, 2), (1, 4), (4, 4)])
def test_groups_that_are_not_there(first, last):
    model = gtrans()
    for each in (model, model.restrict(2, 2)):
        with pytest.raises(ValueError, match="the decoder has 3 groups, counted from 1"):
            each.restrict(first, last)


def test_released_dense_groups_are_means():
    """GTrans, decoder group type dense: z_k is the mean of the gated layers, the last group has one."""
    model = gtrans(representation="mean", probabilities="geometric")
    fusion = model.decoder.fusion
    layers = [torch.randn(2, 3, 16) for _ in range(5)]
    found = fusion(layers, lambda x: x, Context())
    gates = fusion.layer_gates.sigmoid()
    gated = [gate * layer for gate, layer in zip(gates, layers, strict=True)]
    expected = [(gated[0] + gated[1]) / 2, (gated[2] + gated[3]) / 2, gated[4]]
    assert all((a - b).abs().max() < 1e-6 for a, b in zip(found, expected, strict=True))


def test_one_encoder_group_without_norm():
    model = small_model({"encoder": {"fusion": {"type": "groups", "size": 3, "norm": False}}})
    fusion = model.encoder.fusion
    top = torch.randn(2, 3, 16)
    (found,) = fusion([top], lambda x: x, Context())
    assert torch.allclose(found, fusion.gates.sigmoid() * top)
